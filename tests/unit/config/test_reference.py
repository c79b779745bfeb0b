from pathlib import Path

from pydantic.fields import FieldInfo

from elocution.config.reference import describe_config, describe_range
from elocution.config.tree import DataConfig, RolloutConfig, RunConfig, StrictConfig

ROOT = Path(__file__).parents[3]


def test_the_documentation_of_the_config_is_current() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == describe_config(), "run: make docs"


def test_ranges_are_put_in_words() -> None:
    assert describe_range(RolloutConfig.model_fields["group_size"]) == "at least 2 and at most 1024"
    assert describe_range(RolloutConfig.model_fields["temperature"]) == "above 0 and at most 10"
    assert describe_range(DataConfig.model_fields["on_bad_row"]) == "`stop` or `skip`"
    assert describe_range(DataConfig.model_fields["train"]) == ""


def test_every_key_says_what_it_means_at_every_depth() -> None:
    def fields(section: type[StrictConfig], name: str) -> dict[str, FieldInfo]:
        found: dict[str, FieldInfo] = {}
        for key, field in section.model_fields.items():
            if isinstance(field.default, StrictConfig):
                found |= fields(type(field.default), f"{name}{key}.")
            else:
                found[f"{name}{key}"] = field
        return found

    every = fields(RunConfig, "")
    assert {"seed", "model.path", "model.lora.rank"} <= every.keys()
    assert [name for name, field in every.items() if not field.description] == []
