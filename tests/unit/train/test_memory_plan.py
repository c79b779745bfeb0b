import json
import subprocess
import sys
from pathlib import Path

import pytest

from elocution.assets import resolve_path
from elocution.config.load import load_config
from elocution.testing.policies import small_llasa
from elocution.train.memory_plan import ModelShape, describe_memory, plan_memory, read_shape

TINY = resolve_path("builtin:tiny-llasa") / "config.json"
SMALL = ["train.prompts_per_step=4", "rollout.group_size=4", "train.micro_batch_tokens=1000", "eval.sentences=8"]
PROMPT, COMPLETION = 40, 100


def planned(*settings: str, processes: int = 1) -> dict[str, int]:
    shape = read_shape(TINY)
    assert shape is not None
    config = load_config(None, [*SMALL, "train.rules=[]", *settings])
    return vars(plan_memory(shape, config, prompt=PROMPT, completion=COMPLETION, processes=processes))


@pytest.mark.parametrize(
    "settings", [[], ["model.precision=bf16"], ["model.lora.rank=8"]], ids=["fp32", "bf16", "lora"]
)
def test_the_plan_is_within_a_fifth_of_what_the_tensors_of_an_update_take(settings: list[str]) -> None:
    command = [sys.executable, str(Path(__file__).with_name("measure_memory.py"))]
    done = subprocess.run(
        [*command, *SMALL, "train.rules=[]", *settings, str(PROMPT), str(COMPLETION)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    plan = planned(*settings)
    plan["learned"] = plan["optimizer"] + plan["gradients"]
    assert {name: plan[name] for name in measured} == pytest.approx(measured, rel=0.2)
    assert sum(plan[name] for name in measured) == pytest.approx(sum(measured.values()), rel=0.2)


def test_weights_are_counted_exactly(tmp_path: Path) -> None:
    policy = small_llasa()
    policy.save_pretrained(str(tmp_path))
    shape = read_shape(tmp_path / "config.json")
    assert shape is not None
    assert shape.parameters == sum(parameter.numel() for parameter in policy.model.parameters())
    # Llama 3.2 1B with LLaSA's vocabulary, tied: 1 235 814 400 less the 128 256 old rows plus 193 800 new ones.
    llasa = ModelShape(193_800, 2048, 8192, 16, 32, 8, 64, True)
    assert llasa.parameters == 1_235_814_400 + (193_800 - 128_256) * 2048


def test_shards_divide_what_is_trained_and_add_copies_to_sample_from() -> None:
    whole, shard = planned(), planned("train.parallel=fsdp", processes=4)
    for name in ("weights", "optimizer", "gradients"):
        assert shard[name] == whole[name] // 4
    assert whole["copies"] == 0
    assert shard["copies"] == 3 * whole["gradients"]
    assert planned("train.parallel=fsdp") == whole


def test_memory_falls_with_checkpointing_and_rises_with_lag() -> None:
    assert planned("train.activation_checkpointing=true")["activations"] < planned()["activations"] / 3
    lag = planned("train.max_lag=1", "algorithm.correction=token_truncate")
    assert lag["copies"] == 3 * planned()["gradients"]


def cache_of(described: str) -> float:
    (line,) = [line for line in described.splitlines() if "kv cache" in line]
    return float(line.split()[-1])


def test_the_dry_run_says_what_the_plan_is_for(tmp_path: Path) -> None:
    described = describe_memory(load_config(None, []))
    assert described.startswith("memory: ")
    assert "for the longest text of " in described
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"text": "twelve chars"}\n{"text": "one", "prompt_text": "two", "prompt_codes": [1, 2, 3]}\n')
    spoken = describe_memory(load_config(None, [f"data.train={file}"]))
    assert "for the longest text of 12 characters" in spoken
    file.write_text('{"text": "twelve chars", "prompt_text": "two", "prompt_codes": [%s 1]}' % ("1, " * 999))
    longer = describe_memory(load_config(None, [f"data.train={file}"]))
    assert cache_of(longer) > 5 * cache_of(spoken)  # the voice's codes stand before every completion
    nowhere = describe_memory(load_config(None, [f"model.path={tmp_path}"]))
    assert nowhere == f"memory: unknown, there is no {tmp_path / 'config.json'}"
    (tmp_path / "config.json").write_text('{"model_type": "other"}')
    assert "in another way than Llama" in describe_memory(load_config(None, [f"model.path={tmp_path}"]))
