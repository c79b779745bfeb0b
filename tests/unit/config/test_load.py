import re
from pathlib import Path

import pytest

from elocution.config.arithmetic import describe_batch, list_doubts
from elocution.config.load import different_keys, dump_config, load_config
from elocution.config.tree import RunConfig
from elocution.errors import ConfigError


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_the_embedded_default_is_the_tree_of_defaults_plus_its_own_rates() -> None:
    embedded = load_config(None)
    assert [rule.pattern for rule in embedded.train.rules] == ["*embed_tokens*", "model.norm.weight", "*norm*"]
    without_rules = embedded.model_copy(update={"train": embedded.train.model_copy(update={"rules": ()})})
    assert without_rules == RunConfig()


def test_dump_and_load_return_the_same_config(tmp_path: Path) -> None:
    config = load_config(None, ["train.steps=7", "reward.alpha_wer=2.5", "data.on_bad_row=skip"])
    assert load_config(write(tmp_path / "c.toml", dump_config(config))) == config


def test_different_keys_have_full_names() -> None:
    one = load_config(None)
    other = load_config(None, ["seed=3", "model.lora.rank=4", "train.rules=[]"])
    assert different_keys(one, one) == []
    assert different_keys(one, other) == ["seed", "model.lora.rank", "train.rules"]


def test_a_section_of_ones_own_that_only_one_config_has_is_a_difference() -> None:
    words = 'words = {fact = "wer", utility = "tanh"}'
    one, other = (
        load_config(None, ["reward.type=composite", f"reward.components={{{parts}}}"])
        for parts in (words, words + ', pace = {fact = "rate", utility = "band"}')
    )
    assert different_keys(one, other) == different_keys(other, one) == ["reward.components.pace"]


def test_overrides_are_parsed_as_toml_and_bare_words_as_strings() -> None:
    config = load_config(None, ["train.betas=[0.8, 0.9]", "codec.path=/some/where", "seed=3"])
    assert (config.train.betas, config.codec.path, config.seed) == ((0.8, 0.9), "/some/where", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[train]\nsteps = 3\nlearning_rte = 1e-4\n", r"c\.toml:3: unknown key 'train\.learning_rte'.*'learning_rate'"),
        ("[trian]\nsteps = 3\n", r"c\.toml:1: unknown key 'trian'.*'train'"),
        ("steps = 3\n", r"c\.toml:1: unknown key 'steps'.*'train\.steps'"),
        ("[train]\nsteps = 0\n", r"train\.steps = 0: .*greater than or equal to 1"),
        ("[train]\nsteps = 'ten'\n", r"train\.steps = 'ten': .*integer"),
        ("[rollout]\ntemperature = nan\n", r"rollout\.temperature = nan: .*finite"),
        ("train = 3\n", r"c\.toml:1: 'train' is a section, got 3"),
        ("[train\n", r"c\.toml: not valid TOML: .*line 1"),
        ("[reward]\nasr = 'pocketsphinx-open'\n", r"eval\.judge and reward\.asr are both 'pocketsphinx-open'"),
        ("[train]\nminibatches = 17\n", r"train\.minibatches = 17 cannot exceed train\.prompts_per_step = 16"),
    ],
)
def test_bad_config_names_the_place_and_the_remedy(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path / "c.toml", text))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.steps", "expected section.key=value"),
        ("train.step=3", "unknown key 'train.step'.*'steps'"),
        ("train=3", "'train' is a section"),
        ("train.steps=-1", "train.steps = -1"),
    ],
)
def test_bad_override_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, [override])


def test_missing_and_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no config file .*absent\.toml"):
        load_config(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"cannot read the config file .*binary\.toml"):
        load_config(tmp_path / "binary.toml")


def test_batch_arithmetic_multiplies_out() -> None:
    words = describe_batch(load_config(None, ["train.prompts_per_step=6", "rollout.group_size=4", "train.steps=10"]))
    assert "6 prompts x 4 completions = 24 completions" in words
    assert "10 steps = 240 completions" in words


def test_s60_a_tiny_group_is_doubted_and_the_default_is_not() -> None:
    assert list_doubts(load_config(None)) == []
    (doubt,) = list_doubts(load_config(None, ["rollout.group_size=2"]))
    assert "rollout.group_size = 2" in doubt


def test_adapter_settings_without_an_adapter_are_doubted() -> None:
    assert list_doubts(load_config(None, ["model.lora.rank=4", "model.lora.alpha=8"])) == []
    (doubt,) = list_doubts(load_config(None, ["model.lora.alpha=8"]))
    assert "model.lora.rank = 0" in doubt


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["algorithm.advantage='gdpo'"], "gdpo needs weights"),
        (["algorithm.part_weights.wer=1"], "nothing else takes them"),
        (["algorithm.aggregation='fixed'"], "needs a length"),
        (["algorithm.fixed_length=200"], "nothing else takes one"),
        (["algorithm.dual_clip=1.1"], "must exceed 1"),
        (["algorithm.correction_low=3"], "must be below"),
        (["algorithm.loss='ppo'"], "Input should be 'clipped'"),
    ],
)
def test_algorithms_that_do_not_fit_together_are_refused(settings: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config(None, settings)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["train.max_lag=1"], r'train\.max_lag = 1 .*set algorithm\.correction = "token_truncate"'),
        (["train.sync_every=5"], r"up to 4 steps old, but train\.max_lag = 0; raise max_lag to 4, or to 5"),
        (["train.sync_every=5", "train.max_lag=3"], r"train\.max_lag = 3"),
    ],
)
def test_older_weights_need_room_and_a_correction(settings: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config(None, settings)


def test_the_published_overlap_is_a_config_and_is_put_into_words() -> None:
    published = ["train.sync_every=5", "train.max_lag=5", "algorithm.correction='token_truncate'"]
    words = describe_batch(load_config(None, published))
    assert "weights handed over every 5 steps, completions drawn up to 5 steps before their turn" in words
    assert "handed over" not in describe_batch(load_config(None))


def test_weights_of_a_rewards_parts_survive_the_written_config(tmp_path: Path) -> None:
    config = load_config(None, ["algorithm.advantage='gdpo'", "algorithm.part_weights={wer = 2, nll = 0.5}"])
    (tmp_path / "config.toml").write_text(dump_config(config))
    assert load_config(tmp_path / "config.toml") == config
    assert config.algorithm.part_weights == {"wer": 2.0, "nll": 0.5}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("9" * 5000, "the value cannot be read: Exceeds the limit"),
        ("[" * 2000, "the value cannot be read: "),
        ("0x" + "f" * 5000, "of enormous size: must be below 2^63"),
        ("9" * 30, "must be below 2^63"),
        ("[" * 90 + "]" * 90, "valid integer"),
        ("a\u2028b", "valid integer"),
    ],
)
def test_a_value_beyond_all_measure_is_one_short_message(value: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, [f"train.steps={value}"])
    message = str(caught.value)
    assert message.startswith("--set ")
    assert "train.steps" in message
    assert reason in message
    assert len(message) < 700
    assert message.isprintable()


@pytest.mark.parametrize("text", ["[train]\nsteps = " + "9" * 5000, "[train]\nsteps = " + "[" * 2000])
def test_a_file_beyond_all_measure_is_one_message_too(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError, match=rf"{tmp_path / 'c.toml'}: not valid TOML"):
        load_config(tmp_path / "c.toml")


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("algorithm.clip_high=1e300", "must be 0 or between 1e-15 and 1e15 in size"),
        ("rollout.temperature=1e-300", "must be 0 or between 1e-15 and 1e15 in size"),
        ("algorithm.part_weights={wer=1e300}", "must be 0 or between 1e-15 and 1e15 in size"),
        ("algorithm.fixed_length=9223372036854775807", "at most 1000000000"),
    ],
)
def test_numbers_that_no_tensor_can_hold_are_refused(override: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=rf"--set {re.escape(override)}: .*{re.escape(reason)}"):
        load_config(None, [override])
