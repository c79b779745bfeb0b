"""A config error points at the line or the override that its value came from."""

from pathlib import Path

import pytest

from elocution.config.load import load_config
from elocution.errors import ConfigError


def message_of(path: Path, text: str, *overrides: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


def test_a_key_is_found_in_its_own_section_even_if_an_earlier_section_has_one_of_that_name(tmp_path: Path) -> None:
    text = "[rollout]\nbatch_size = 3\n\n[train]\nbatch_size = 3\n"
    assert "c.toml:5: unknown key 'train.batch_size'" in message_of(tmp_path / "c.toml", text)


def test_a_section_within_a_section_has_its_lines_and_its_names(tmp_path: Path) -> None:
    text = "[model]\nfamily = 'llasa'\n\n[model.lora]\nrnk = 4\n"
    assert "c.toml:5: unknown key 'model.lora.rnk'; did you mean 'rank'?" in message_of(tmp_path / "c.toml", text)
    text = "[train]\nalpha = 8\n"
    assert "unknown key 'train.alpha'; did you mean 'model.lora.alpha'?" in message_of(tmp_path / "c.toml", text)
    text = "[model]\nlora.rank = -1\n"
    assert message_of(tmp_path / "c.toml", text).startswith(f"{tmp_path / 'c.toml'}:2: model.lora.rank = -1: ")


def test_a_bad_value_names_its_line_and_both_ends_of_its_range(tmp_path: Path) -> None:
    message = message_of(tmp_path / "c.toml", "# hot\n[rollout]\ntemperature = 50.0  # too hot\n")
    assert "c.toml:3: rollout.temperature = 50.0: " in message
    assert message.endswith("(allowed: above 0 and at most 10)")


def test_a_bad_override_is_blamed_and_not_the_file(tmp_path: Path) -> None:
    message = message_of(tmp_path / "c.toml", "[train]\nsteps = 3\n", "train.steps=0")
    assert message.startswith("--set train.steps=0: train.steps = 0: ")


def test_every_bad_value_is_told_at_once_on_a_line_of_its_own(tmp_path: Path) -> None:
    lines = message_of(tmp_path / "c.toml", "[train]\nsteps = 0\nmax_grad_norm = -1\n").splitlines()
    assert ["c.toml:2: train.steps" in lines[0], "c.toml:3: train.max_grad_norm" in lines[1]] == [True, True]


def test_an_override_is_blamed_for_what_is_within_it_and_for_rules_across_keys(tmp_path: Path) -> None:
    for override, problem in (
        ("train.rules=[{pattern='a'}]", "train.rules.learning_rate"),
        ("train.betas=[1, 0.5]", "train.betas = [1.0, 0.5]"),
        ("eval.judge=pocketsphinx-bigram", "eval.judge and reward.asr are both"),
    ):
        assert f"--set {override}: {problem}" in message_of(tmp_path / "c.toml", "[train]\nsteps = 3\n", override)


def test_an_override_of_several_lines_is_refused(tmp_path: Path) -> None:
    assert "several lines" in message_of(tmp_path / "c.toml", "", "train.steps=3\nseed=5")


@pytest.mark.parametrize(
    "override",
    ["rollout.min_codes=1e9", "rollout.max_codes_per_char=1e300", "eval.bootstrap_samples=1_000_000_000_000"],
)
def test_a_number_that_no_memory_holds_is_refused(tmp_path: Path, override: str) -> None:
    assert message_of(tmp_path / "c.toml", "", override).startswith(f"--set {override}: ")


@pytest.mark.parametrize("override", ["seed.x=3", "train.betas.first=0.5"])
def test_an_override_below_a_value_is_refused(tmp_path: Path, override: str) -> None:
    text = "seed = 1\n[train]\nbetas = [0.9, 0.95]\n"
    assert "is a value, not a section" in message_of(tmp_path / "c.toml", text, override)


def test_a_byte_order_mark_and_crlf_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xef\xbb\xbf[train]\r\nsteps = 3\r\n")
    assert load_config(path).train.steps == 3


def test_a_whole_number_is_a_number_but_a_boolean_is_none(tmp_path: Path) -> None:
    assert load_config(None, ["rollout.temperature=1"]).rollout.temperature == 1.0
    assert "valid integer" in message_of(tmp_path / "c.toml", "[train]\nsteps = true\n")


def test_a_folder_in_place_of_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the config file"):
        load_config(tmp_path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.betas=[0.9, 1.0]", r"train\.betas = \[0\.9, 1\.0\] must each lie in \[0, 1\)"),
        ("eval.sentences=4", r"eval\.probe_sentences = 8 cannot exceed eval\.sentences = 4"),
    ],
)
def test_fields_that_contradict_each_other_are_both_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, [override])
