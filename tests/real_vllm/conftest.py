"""Real vLLM servers for the tests, in an environment of their own; see `make test-vllm`."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from elocution.assets import resolve_path
from elocution.config.tree import ServerConfig
from elocution.policies.llasa import LlasaPolicy
from elocution.rollout.launch import LaunchedServer, RemoteServer
from elocution.rollout.vllm_launch import vllm_launch
from elocution.rollout.vllm_servers import VllmServers

# What lets a server run beside other work on a small machine.
ON_A_CPU = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
VOCABULARY = 2223  # of the tiny checkpoint
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def vllm_python() -> str:
    python = os.environ.get("ELOCUTION_VLLM_PYTHON", str(ROOT / ".venv-vllm" / "bin" / "python"))
    if not Path(python).is_file():
        pytest.skip(f"needs a Python with vLLM, {python} does not exist; run `make test-vllm`")
    return python


@pytest.fixture(scope="session")
def settings(vllm_python: str) -> ServerConfig:
    return ServerConfig(python=vllm_python, flags=("--enforce-eager",), env=ON_A_CPU)


@pytest.fixture(scope="session")
def tiny_server(settings: ServerConfig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LaunchedServer]:
    """The tiny Llama with room for adapters; tests restore what they change by loading weights of their own."""
    launch = vllm_launch(
        settings, model_path=resolve_path("builtin:tiny-llasa"), precision="fp32", lora_rank=4, on_cpu=True
    )
    with LaunchedServer(launch, tmp_path_factory.mktemp("tiny") / "server.log") as server:
        yield server


@pytest.fixture
def tiny_servers(tiny_server: LaunchedServer) -> Iterator[VllmServers]:
    """The tiny server as one that somebody else runs."""
    servers = VllmServers([RemoteServer(tiny_server.url)], vocab_size=VOCABULARY)
    yield servers
    servers.stop()


@pytest.fixture
def tiny_policy() -> LlasaPolicy:
    return LlasaPolicy.from_pretrained(resolve_path("builtin:tiny-llasa"))
