"""`elocution serve tts` that goes wrong: the server's own app and engine, whose loads and draws a test can spoil.

`python tts_double.py --port N --model CHECKPOINT`, other arguments are ignored. `POST /fault` says how: a fault of
`BrokenEngine` from load number `since` + 1 on, `times` times, or one of draws: `crosses` answers, is `late` once, `dies`
once. `GET /loads` counts loads since then. `TTS_DOUBLE_FAULT` says so from the start; with `once`, a file that is made when
the fault happens, it does not happen where that file is.
"""

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from fastapi import Request

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "rollout" / "sync"))

from broken_engines import BrokenEngine
from safetensors.torch import load_file
from torch import Tensor

from elocution.policies.base import Policy
from elocution.serve import tts_server
from elocution.serve.sockets import bind, listen, uvicorn_server
from elocution.serve.tts_app import build_app
from elocution.serve.tts_engine import Drawn, Job, TtsEngine
from elocution.serve.tts_server import TtsSettings, tts_service


class Faults(BrokenEngine):
    """The faults of `BrokenEngine`, for a number of times, and those of a process."""

    def __init__(
        self, base: Path, fault: str = "no op", since: int = 10**9, times: int = 10**9, draws: int = 0, once: str = ""
    ) -> None:
        """With `draws`, the fault is one of draws, and happens after so many of them."""
        super().__init__(base, fault, since=since)
        self.last, self.draws, self.once = since + times, draws, once
        self.released = threading.Event()

    def load_weights(self, directory: Path, version: int) -> Any:
        if self.loads >= self.last:
            self.since = 10**9
        return super().load_weights(directory, version)

    def draws_wrongly(self) -> bool:
        self.draws -= 1
        return self.draws == 0

    def _hangs(self, directory: Path, version: int) -> None:
        self.released.wait()

    def _dies(self, directory: Path, version: int) -> None:
        self.die()
        self._load(directory, version)

    def die(self) -> None:
        if self.once and Path(self.once).exists():
            return
        Path(self.once).touch()
        os._exit(1)


class DoubleEngine(TtsEngine):
    """The server's engine, with weights as the faults have loaded them."""

    def __init__(self, load: Any, path: Path, *, batch_size: int) -> None:
        self.faults = Faults(path, **json.loads(os.environ.get("TTS_DOUBLE_FAULT", "{}")))
        self.base = path
        self.sent: Mapping[str, Tensor] = {}
        super().__init__(self.load, path, batch_size=batch_size)

    def load(self, folder: Path) -> Policy:
        if folder != self.base:
            self.faults.load_weights(folder, 0)
        return self.faults._loaded()

    def load_tensors(self, tensors: Mapping[str, Tensor], version: str) -> None:
        faults = self.faults
        faults.loads += 1
        if faults.since < faults.loads <= faults.last:
            spoilt = spoil(tensors, faults.fault, self.sent, load_file(self.base / "model.safetensors"))
        else:
            spoilt = dict(tensors)
        self.sent = dict(tensors)
        super().load_tensors(spoilt, version)

    def run(self, jobs: Sequence[Job]) -> list[Drawn]:
        results = super().run(jobs)
        if jobs[0].given or max(job.max_new for job in jobs) == 1:  # scores and health
            return results
        fault = self.faults.fault
        if fault == "crosses" and len(results) > 1:
            return [
                replace(one, completions=other.completions)
                for one, other in zip(results, results[1:] + results[:1], strict=True)
            ]
        if fault in ("late", "dies") and self.faults.draws_wrongly():
            if fault == "dies":
                self.faults.die()
            time.sleep(6)
        return results


def spoil(
    tensors: Mapping[str, Tensor], fault: str, before: Mapping[str, Tensor], base: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """What a server takes that gets `tensors` and goes wrong; `before` is what it got before."""
    match fault:
        case "no op":
            return {}
        case "old weights":
            return dict(before)
        case "half the shards":
            return {name: tensor for name, tensor in tensors.items() if ".layers.0" in name or ".layers.3" in name}
        case "misnamed keys":
            return {name: tensor for name, tensor in tensors.items() if ".layers.2." not in name}
        case "wrong scale":
            return {name: 2 * tensor - base[name] for name, tensor in tensors.items()}
    raise ValueError(fault)


def serve(settings: TtsSettings) -> None:
    tts_server.TtsEngine = DoubleEngine  # type: ignore[misc]
    with bind(settings.host, settings.port) as listener, tts_service(settings) as service:
        app, engine = build_app(service), service.engine
        assert isinstance(engine, DoubleEngine)

        @app.post("/fault")
        async def fault(request: Request) -> None:
            engine.faults.released.set()
            engine.faults, engine.sent = Faults(engine.base, **await request.json()), {}
            await_nothing_of_before(engine)

        @app.get("/loads")
        async def loads() -> dict[str, int]:
            return {"loads": engine.faults.loads}

        def await_nothing_of_before(engine: DoubleEngine) -> None:
            engine.load_weights(engine.base, "default")
            service.may_draw.set()

        listen(listener, settings.host)
        uvicorn_server(app, drain_s=1).run(sockets=[listener])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--model")
    chosen, _ = parser.parse_known_args()
    torch.set_num_threads(1)
    serve(TtsSettings(model=chosen.model, port=chosen.port, max_delay_ms=20))
