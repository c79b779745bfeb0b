"""How a server that speaks SGLang's interface is started: SGLang itself, or our own `elocution serve tts`."""

import sys
from pathlib import Path

import elocution
from elocution.config.tree import ServerConfig
from elocution.other_python import OWN_VARIABLES
from elocution.rollout.launch import ServerLaunch

__all__ = ["sglang_launch", "tts_launch"]

_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def sglang_launch(
    settings: ServerConfig, *, model_path: Path, precision: str, lora_rank: int, device: str = "", port: int = 0
) -> ServerLaunch:
    """The launch of an SGLang server of the checkpoint in `model_path`, on `device` (empty: whatever there is).

    `--enable-custom-logit-processor` lets a request bring the mask of legal ids (`sglang_legal`), which the server imports
    from this package; without it draws are from the whole vocabulary. `--enable-deterministic-inference` makes
    completions follow from their seeds.
    """
    options = [
        *("--model-path", str(model_path), "--dtype", _DTYPES[precision]),
        *("--enable-custom-logit-processor", "--enable-deterministic-inference"),
        *(("--enable-lora", "--max-lora-rank", str(lora_rank)) if lora_rank else ()),
        *settings.flags,
    ]
    command = [settings.python or sys.executable, "-m", "sglang.launch_server"]
    environment: dict[str, str | None] = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(Path(elocution.__file__).parents[1])}
    return _launch(settings, [*command, *options], environment, device, port)


def tts_launch(
    settings: ServerConfig,
    *,
    model_path: Path,
    family: str,
    precision: str,
    codec: tuple[str, str],
    device: str,
    port: int,
) -> ServerLaunch:
    """The launch of our own server; `codec` is its type and path."""
    options = [
        *("--model", str(model_path), "--family", family, "--precision", precision),
        *("--codec", codec[0], "--codec-path", codec[1]),
        *settings.flags,
    ]
    command = [settings.python or sys.executable, "-m", "elocution", "serve", "tts"]
    return _launch(settings, [*command, *options], {"ELOCUTION_TTS_TOKEN": None}, device, port)


def _launch(
    settings: ServerConfig, command: list[str], environment: dict[str, str | None], device: str, port: int
) -> ServerLaunch:
    if settings.python:
        environment = dict.fromkeys(OWN_VARIABLES) | environment
    if device:
        environment = environment | {"CUDA_VISIBLE_DEVICES": device}
    return ServerLaunch(
        command=lambda chosen: [*command, "--host", "127.0.0.1", "--port", str(chosen)],
        environment=environment | settings.env,
        port=port,
        start_timeout_s=settings.start_timeout_s,
        max_restarts=settings.max_restarts,
    )
