"""The TTS server as a process: load, listen, drain."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.policies import load_policy
from elocution.policies.base import Policy
from elocution.rollout.codec_fit import check_codec
from elocution.serve.batching import Batcher
from elocution.serve.sockets import bind, is_loopback, listen, listening_url, uvicorn_server
from elocution.serve.tts_app import TtsService, build_app
from elocution.serve.tts_engine import Drawn, Job, TtsEngine
from elocution.serve.tts_messages import Limits
from elocution.serve.tts_metrics import TtsMetrics
from elocution.serve.tts_voice import Voice
from elocution.train.checkpoint import verify_checkpoint
from elocution.train.interrupt import StopRequest

__all__ = ["TtsSettings", "serve_tts", "tts_service"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TtsSettings:
    """What is served and where. `model` may also be a training checkpoint, which is verified first.

    Units: `max_delay_ms` is how long a request waits for others to be drawn with; `drain_s` seconds; `max_body` bytes.
    """

    model: str = "builtin:tiny-llasa"
    family: str = "llasa"
    precision: str = "fp32"
    codec: str = "tiny"
    codec_path: str = "builtin:tiny-codec"
    host: str = "127.0.0.1"
    port: int = 30_000
    token: str | None = None
    max_batch_size: int = 64
    max_delay_ms: float = 5.0
    max_waiting: int = 4096
    max_body: int = 4 << 20
    drain_s: float = 60.0


def serve_tts(settings: TtsSettings, on_ready: Callable[[str], None]) -> None:
    """Serves until SIGTERM or SIGINT, answers what is under way, and returns; `on_ready` hears the server's URL.

    Raises: ConfigError, CheckpointError, CodecError, ServerError if the port is taken.
    """
    with ExitStack() as stack:
        # uvicorn raises the signal that ended it again; here it has done its work.
        stop = stack.enter_context(StopRequest())
        listener = stack.enter_context(bind(settings.host, settings.port))
        service = stack.enter_context(tts_service(settings))
        if stop:
            return
        listen(listener, settings.host)
        if settings.token is None and not is_loopback(settings.host):
            logger.warning(
                "anyone who can reach %s may use this server and replace its weights; set --token", settings.host
            )
        on_ready(listening_url(listener, settings.host))
        uvicorn_server(build_app(service), drain_s=settings.drain_s).run(sockets=[listener])


@contextmanager
def tts_service(settings: TtsSettings) -> Iterator[TtsService]:
    """Model, codec and queue, loaded; they end with the context.

    Raises: ConfigError, CheckpointError, CodecError.
    """
    path = resolve_path(settings.model)
    if (path / "state.json").is_file():
        path = verify_checkpoint(path).model_path

    def load(folder: Path) -> Policy:
        return load_policy(settings.family, folder, precision=settings.precision)

    engine = TtsEngine(load, path, batch_size=settings.max_batch_size)
    codec = load_codec(settings.codec, resolve_path(settings.codec_path))
    check_codec(codec, engine.policy, name=settings.codec_path)
    metrics = TtsMetrics()

    def run(jobs: Sequence[Job]) -> list[Drawn]:
        metrics.batch_size.observe(len(jobs))
        results = engine.run(jobs)
        metrics.ids.inc(sum(len(completion.ids) for result in results for completion in result.completions))
        return results

    batcher = Batcher[Job, Drawn](
        run,
        bucket=lambda job: job.bucket,
        max_batch_size=settings.max_batch_size,
        max_delay_s=settings.max_delay_ms / 1000,
        max_waiting=settings.max_waiting,
        concurrency=1,
    )
    metrics.waiting.set_function(lambda: batcher.num_waiting)
    try:
        yield TtsService(
            engine=engine,
            voice=Voice(engine.policy, codec),
            batcher=batcher,
            metrics=metrics,
            limits=Limits(),
            token=settings.token,
            max_body=settings.max_body,
        )
    finally:
        batcher.close()
