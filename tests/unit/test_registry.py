from pathlib import Path

import pytest

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.errors import ConfigError
from elocution.registry import import_part


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json", r"there is no thing 'json'; did you mean 'jsn'\? Known: jsn"),
        ("json:", "there is no thing 'json:'"),
        (":JSONDecoder", "there is no thing ':JSONDecoder'"),
        (".json:JSONDecoder", "there is no thing '.json:JSONDecoder'"),
        ("no.such:Thing", "cannot import the thing 'no.such:Thing': ModuleNotFoundError"),
        ("json:Nothing", "cannot import the thing 'json:Nothing': AttributeError"),
        ("json:dumps", "'json:dumps' cannot be a thing: it is no class"),
        ("json:JSONEncoder", "'json:JSONEncoder' cannot be a thing: it has no decode"),
    ],
)
def test_a_name_that_means_no_such_class_is_refused(name: str, message: str) -> None:
    methods = ["decode"] if name == "json:JSONEncoder" else []
    with pytest.raises(ConfigError, match=message):
        import_part("thing", name, {"jsn": "json:JSONDecoder"}, methods=methods)


def test_a_module_that_cannot_be_imported_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_part.py").write_text("def class\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot import the thing 'broken_part:X': SyntaxError: .*broken_part\.py"):
        import_part("thing", "broken_part:X", {})


def test_a_codec_must_load_and_decode() -> None:
    with pytest.raises(ConfigError, match="it has no from_pretrained, decode"):
        load_codec("json:JSONEncoder", Path())


@pytest.mark.parametrize("value", ["~nobody-of-that-name/model", "a\0b", "builtin:absent"])
def test_a_value_that_is_no_path_is_a_config_error(value: str) -> None:
    with pytest.raises(ConfigError, match=r"no path|nothing ships"):
        resolve_path(value)
