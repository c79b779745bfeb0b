"""What the builder does before, after and instead of its long stages."""

import sys
from pathlib import Path

import numpy as np
import pytest

from elocution.errors import MissingDependency, StorageError
from elocution.tiny.build import build
from elocution.tiny.speech import SpeechCorpus


@pytest.mark.parametrize(("module", "package"), [("hibari", "hibari-tts"), ("sklearn", "scikit-learn")])
def test_without_its_extra_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    (tmp_path / "stand_ins").mkdir()
    for name in {"hibari", "sklearn"} - {module}:
        (tmp_path / "stand_ins" / f"{name}.py").touch()
    monkeypatch.setattr("sys.path", [str(tmp_path / "stand_ins"), *_paths_without(module)])
    with pytest.raises(
        MissingDependency, match=rf"'{package}' is not installed; run: pip install 'elocution\[tiny-build\]'$"
    ):
        build(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _paths_without(module: str) -> list[str]:
    return [path for path in sys.path if not (Path(path) / module).exists()]


def test_a_place_that_is_a_file_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hibari", "sklearn"):
        (tmp_path / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "out").touch()
    with pytest.raises(StorageError, match=f"cannot write {tmp_path / 'out'}"):
        build(tmp_path / "out")


def test_speech_is_saved_whole_or_not_at_all(tmp_path: Path) -> None:
    corpus = SpeechCorpus(("one", "three"), np.arange(5, dtype=np.int16), np.array([0, 2, 5]))
    corpus.save(tmp_path / "speech.npz")
    again = SpeechCorpus.load(tmp_path / "speech.npz")
    assert again.sentences == corpus.sentences
    assert np.array_equal(again.clip(1), corpus.clip(1))
    assert [path.name for path in tmp_path.iterdir()] == ["speech.npz"]
