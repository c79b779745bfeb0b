from collections.abc import Callable
from pathlib import Path

import pytest

from elocution.assets import resolve_path
from elocution.codecs import load_codec
from elocution.errors import ConfigError
from elocution.measures import load_phoneme_scorer, load_transcriber
from elocution.policies import load_policy
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


def test_a_module_that_leaves_the_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaving_part.py").write_text("raise SystemExit('bye')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="cannot import the thing 'leaving_part:X': SystemExit: bye"):
        import_part("thing", "leaving_part:X", {})


class Half:
    """Has every method of a policy, codec and recogniser, and builds nothing of use."""

    check_text = prompt_ids = codes = logprobs = incremental = save_pretrained = decode = lambda self: None
    illegal_cells = codes
    score: int = 5

    def __init__(self) -> None:
        raise OSError("no such model")

    @classmethod
    def from_pretrained(cls, path: Path, **options: object) -> object:
        return object() if path.name == "empty" else cls()

    def transcribe(self) -> None: ...


HALF = f"{__name__}:Half"


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (lambda: load_codec("json:JSONEncoder", Path()), "cannot be a codec: it has no from_pretrained, decode"),
        (
            lambda: load_policy("json:JSONDecoder", Path()),
            "cannot be a model family: it has no from_pretrained, check_",
        ),
        (lambda: load_transcriber("json:JSONDecoder"), "cannot be a recogniser: it has no transcribe"),
        (lambda: load_phoneme_scorer(HALF), "cannot be a phoneme scorer: it has no score"),
        (lambda: load_codec(HALF, Path("x")), r"cannot build the codec .*Half': OSError: no such model \(.*py:\d+\)"),
        (lambda: load_policy(HALF, Path("x")), "cannot build the model family .*Half': OSError: no such model"),
        (lambda: load_transcriber(HALF), "cannot build the recogniser .*Half': OSError: no such model"),
        (lambda: load_codec(HALF, Path("empty")), "Half' cannot be a codec: what it builds has no sample_rate, frame_"),
        (lambda: load_policy(HALF, Path("empty")), "Half' cannot be a model family: what it builds has no model, comp"),
    ],
)
def test_a_class_that_is_no_such_part_or_cannot_be_built_is_named(load: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load()


@pytest.mark.parametrize("value", ["~nobody-of-that-name/model", "a\0b", "builtin:absent"])
def test_a_value_that_is_no_path_is_a_config_error(value: str) -> None:
    with pytest.raises(ConfigError, match=r"no path|nothing ships"):
        resolve_path(value)
