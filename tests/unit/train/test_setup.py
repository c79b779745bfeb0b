import gc
import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from elocution.codecs.mel import MelSettings
from elocution.codecs.tiny import TinyCodec
from elocution.config.load import load_config
from elocution.config.tree import RunConfig
from elocution.errors import ConfigError, DataError
from elocution.policies.lora import adapter_parameters
from elocution.train.setup import Parts, build_parts


def config_of(*overrides: str) -> RunConfig:
    return load_config(None, ["train.rules=[]", "eval.sentences=2", "eval.probe_sentences=1", *overrides])


def built(config: RunConfig, model_path: Path | None = None) -> tuple[Parts, int]:
    """The parts, and how many models were loaded for them."""

    def count() -> int:
        gc.collect()
        return sum(type(each) is LlamaForCausalLM for each in gc.get_objects())

    before = count()
    parts = build_parts(config, model_path)
    return parts, count() - before


def trained_names(parts: Parts) -> list[str]:
    chosen = {id(parameter) for group in parts.optimizer.param_groups for parameter in group["params"]}
    return [name for name, parameter in parts.policy.model.named_parameters() if id(parameter) in chosen]


def test_full_fine_tuning_trains_every_parameter_beside_a_frozen_copy() -> None:
    parts, models = built(config_of())
    assert models == 2
    assert len(trained_names(parts)) == len(list(parts.policy.model.parameters()))


def test_with_an_adapter_one_model_is_policy_and_reference_and_the_adapter_alone_is_trained() -> None:
    parts, models = built(config_of("model.lora.rank=2"))
    assert models == 1
    assert trained_names(parts) == list(adapter_parameters(parts.policy.model))


def test_rules_choose_among_the_parameters_of_the_adapter() -> None:
    rules = "[{pattern = '*lora_A*', learning_rate = 0.0}, {pattern = '*q_proj.lora_B*', learning_rate = 0.5}]"
    parts, _ = built(config_of("model.lora.rank=2", f"train.rules={rules}"))
    assert [(group["lr"], len(group["params"])) for group in parts.optimizer.param_groups] == [(0.5, 6), (1e-4, 36)]
    assert all("lora_B" in name for name in trained_names(parts))
    with pytest.raises(ConfigError, match=r"'\*norm\*' decides for no parameter that is trained.*lora_A"):
        built(config_of("model.lora.rank=2", "train.rules=[{pattern = '*norm*', learning_rate = 0.1}]"))


def test_a_saved_adapter_resumes_with_its_weights_and_its_base(tmp_path: Path) -> None:
    config = config_of("model.lora.rank=2")
    parts, _ = built(config)
    with torch.no_grad():
        for parameter in adapter_parameters(parts.policy.model).values():
            parameter.add_(0.01)
    parts.save_model(str(tmp_path / "one"))
    again, models = built(config, tmp_path / "one")
    assert models == 1
    one, other = (adapter_parameters(each.policy.model) for each in (parts, again))
    assert all(torch.equal(one[name], other[name]) for name in one)
    again.save_model(str(tmp_path / "two"))
    for file in (tmp_path / "one").iterdir():
        assert (tmp_path / "two" / file.name).read_bytes() == file.read_bytes()


def test_an_adapter_as_the_model_to_start_from_is_refused_with_the_way_to_merge_it(tmp_path: Path) -> None:
    built(config_of("model.lora.rank=2"))[0].save_model(str(tmp_path / "adapter"))
    with pytest.raises(ConfigError, match=r"is an adapter; write it merged .*save_pretrained\('merged'\)"):
        build_parts(config_of(f"model.path={tmp_path / 'adapter'}"))


def test_s33_a_codec_of_another_policy_is_found_at_setup(tmp_path: Path) -> None:
    settings = MelSettings(num_bands=8)
    TinyCodec(torch.zeros(2047, settings.frames_per_code * 8), settings).save_pretrained(tmp_path / "codec")
    with pytest.raises(ConfigError, match=rf"the codec {tmp_path / 'codec'} has 2047 codes, the policy writes 2048"):
        build_parts(config_of(f"codec.path={tmp_path / 'codec'}"))


def test_texts_that_cannot_be_spoken_are_bad_rows_by_file_and_line(tmp_path: Path) -> None:
    rows = ["the doctor visited the school", "one <|s_5|> three six", "nine", "the secretary discovered the government"]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in rows))
    # 13 codes for each character: 377 and 507 codes beside prompts of some 50 tokens, in 512 positions.
    overrides = [f"data.train={path}", "train.prompts_per_step=1", "rollout.max_codes_per_char=13"]
    with pytest.raises(DataError) as caught:
        build_parts(config_of(*overrides))
    shown = str(caught.value).splitlines()[1:]
    assert [line.strip().split(": ", 1)[0] for line in shown] == [f"{path}:{line}" for line in (2, 3, 4)]
    assert "holds control tokens: <|s_5|>" in shown[0]
    assert "taught texts of 3 to 6 words, this one has 1" in shown[1]
    assert "exceed the model's 512 positions" in shown[2]
    parts = build_parts(config_of(*overrides, "data.on_bad_row=skip"))
    assert [utterance.text for utterance in parts.train_prompts.utterances] == rows[:1]
    assert [row.line for row in parts.train_prompts.skipped] == [2, 3, 4]
