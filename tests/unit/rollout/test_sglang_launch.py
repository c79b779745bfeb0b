from pathlib import Path

from elocution.config.tree import ServerConfig
from elocution.rollout.sglang_launch import sglang_launch, tts_launch


def test_sglang_is_started_so_that_it_takes_the_mask_and_follows_seeds() -> None:
    settings = ServerConfig(python="sglang-env/bin/python", flags=("--mem-fraction-static=0.5",))
    launch = sglang_launch(settings, model_path=Path("/m"), precision="bf16", lora_rank=0, device="1", port=0)
    command = list(launch.command(31_000))
    assert command[:3] == ["sglang-env/bin/python", "-m", "sglang.launch_server"]
    assert command[command.index("--model-path") + 1] == "/m"
    assert command[command.index("--dtype") + 1] == "bfloat16"
    assert command[command.index("--port") + 1] == "31000"
    for flag in ("--enable-custom-logit-processor", "--enable-deterministic-inference", "--mem-fraction-static=0.5"):
        assert flag in command
    assert "--enable-lora" not in command
    assert launch.environment["CUDA_VISIBLE_DEVICES"] == "1"


def test_adapters_are_given_room() -> None:
    launch = sglang_launch(ServerConfig(), model_path=Path("/m"), precision="fp32", lora_rank=8)
    command = list(launch.command(1))
    assert command[command.index("--max-lora-rank") + 1] == "8"


def test_our_own_server_is_started_with_model_and_codec_and_no_key() -> None:
    launch = tts_launch(
        ServerConfig(),
        model_path=Path("/m"),
        family="llasa",
        precision="fp32",
        codec=("tiny", "/c"),
        device="",
        port=0,
    )
    command = list(launch.command(5))
    assert command[1:5] == ["-m", "elocution", "serve", "tts"]
    assert command[command.index("--codec-path") + 1] == "/c"
    assert launch.environment["ELOCUTION_TTS_TOKEN"] is None
