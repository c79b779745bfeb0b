import sys
from pathlib import Path

import pytest

from elocution.config.tree import ServerConfig
from elocution.errors import ConfigError, MissingDependency
from elocution.rollout.launch import ServerLaunch
from elocution.rollout.vllm_launch import check_vllm_is_installed, vllm_launch


def launch(settings: ServerConfig = ServerConfig(), **changes: object) -> ServerLaunch:  # noqa: B008
    asked: dict[str, object] = {"model_path": Path("/m"), "precision": "fp32", "lora_rank": 0, "on_cpu": False}
    return vllm_launch(settings, **(asked | changes))  # type: ignore[arg-type]


def test_a_server_reports_what_it_samples_and_takes_no_default_of_the_checkpoint() -> None:
    command = " ".join(launch(ServerConfig(flags=("--max-model-len=2048",))).command(8001))
    assert command == (
        f"{sys.executable} -m vllm.entrypoints.openai.api_server --host 127.0.0.1 --port 8001 --model /m "
        "--served-model-name policy --dtype float32 --logprobs-mode processed_logprobs --generation-config vllm "
        "--max-model-len=2048"
    )


def test_precision_adapters_sleep_and_cpu_have_their_flags() -> None:
    command = launch(ServerConfig(sleep=True), precision="bf16", lora_rank=9, on_cpu=True).command(1)
    assert command[command.index("--dtype") + 1] == "bfloat16"
    assert command[command.index("--max-lora-rank") + 1] == "16"
    assert {"--enable-lora", "--enable-sleep-mode", "--no-enable-chunked-prefill"} <= set(command)


def test_devices_and_variables_reach_the_server_and_our_own_path_does_not() -> None:
    made = launch(ServerConfig(python="/p", env={"A": "1", "HF_HUB_OFFLINE": "0"}), device="0,1")
    assert made.environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert (made.environment["A"], made.environment["HF_HUB_OFFLINE"]) == ("1", "0")
    assert made.environment["PYTHONPATH"] is None
    assert made.environment["VLLM_SERVER_DEV_MODE"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in launch().environment


def test_s68_an_adapter_too_large_for_the_engine_is_refused_before_it_starts() -> None:
    with pytest.raises(ConfigError, match=r"model\.lora\.rank = 513, but vLLM takes adapters of at most 512"):
        launch(lora_rank=513)


@pytest.mark.parametrize(
    ("python", "reason"), [("", "does not have it"), ("/no/python", "cannot be run: No such file")]
)
def test_s89_an_absent_vllm_is_said_with_the_way_to_get_it(python: str, reason: str) -> None:
    with pytest.raises(MissingDependency, match=rf"needs vLLM, but .* {reason}(.|\n)*pip install vllm.*server\.python"):
        check_vllm_is_installed(python)
