from pathlib import Path

from elocution.config.load import dump_config, load_config
from elocution.report.origins import compare_with_recipe, flatten


def written(path: Path, *overrides: str) -> Path:
    path.write_text(dump_config(load_config(None, overrides)))
    return path


def test_keys_that_differ_have_both_values(tmp_path: Path) -> None:
    found = compare_with_recipe(written(tmp_path / "config.toml", "train.steps=7"))
    assert found.recipe == "configs/llasa/published.toml"
    assert ("train.steps", "2000", "7") in found.rows
    assert ("reward.asr_path", "whisper-large-v3", "not set") in found.rows
    assert "train.max_lag" not in [key for key, _, _ in found.rows]


def test_a_family_without_a_published_recipe_is_held_against_the_defaults(tmp_path: Path) -> None:
    found = compare_with_recipe(written(tmp_path / "config.toml", "model.family=spark"))
    assert found.recipe == "the defaults, since nothing is published for spark"
    assert ("model.family", "llasa", "spark") in found.rows


def test_a_table_that_one_side_lacks_is_shown_whole(tmp_path: Path) -> None:
    overrides = ("reward.type=composite", 'reward.components={clear = {fact = "wer", utility = "linear"}}')
    rows = {key: (one, other) for key, one, other in compare_with_recipe(written(tmp_path / "c.toml", *overrides)).rows}
    recipe, run = rows["reward.components.clear"]
    assert recipe == "not set"
    assert "fact = wer" in run


def test_a_config_of_another_version_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("tomorrow = 1\n")
    assert compare_with_recipe(tmp_path / "config.toml").problem.startswith("This version cannot read the config: ")


def test_flat_names_keep_the_order_of_the_tree() -> None:
    assert list(flatten({"b": {"y": 1, "x": None}, "a": [], "c": {}})) == [
        *(("b.y", "1"), ("b.x", "not set"), ("a", "not set"), ("c", "not set")),
    ]
