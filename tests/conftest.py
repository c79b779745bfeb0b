"""Real speech for the tests: a few short clips, each in a file that is named after its words."""

import os
from collections.abc import Iterator
from pathlib import Path

# On a machine that does other things too, threads that wait for each other take ten times as long as one alone.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import soundfile
from tqdm import tqdm

from elocution.types import Audio

tqdm.monitor_interval = 0  # no thread that outlives the bar: tests look for what their runs leave behind

_SPEECH = Path(__file__).parent / "data" / "speech"
_MARKED = {Path(__file__).parent / f"real_{name}": name for name in ("vllm", "verl")}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs an environment of its own is marked by its folder."""
    for item in items:
        for folder, name in _MARKED.items():
            if folder in item.path.parents:
                item.add_marker(name)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What runs keep for later runs does not go into the home of whoever tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def spoken() -> dict[str, Audio]:
    """Text -> clip, 16 kHz."""
    clips = {}
    for path in sorted(_SPEECH.glob("*.flac")):
        samples, sample_rate = soundfile.read(path, dtype="float32")
        clips[path.stem.replace("-", " ")] = Audio(np.asarray(samples), sample_rate)
    return clips
