from pathlib import Path

import pytest

from elocution.data.clips import open_clips
from elocution.errors import DataError


def test_a_misspelt_path_is_not_asked_for_on_a_hub() -> None:
    with pytest.raises(DataError, match=r"there is no file or folder recordigns; a dataset on .* is named owner/name"):
        open_clips("recordigns", language="en")


def test_an_empty_folder_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is an empty folder$"):
        open_clips(str(tmp_path), language="en")
