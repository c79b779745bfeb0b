import errno
import os
from pathlib import Path

import pytest

from elocution.errors import StorageError
from elocution.files import reporting_disk_errors, write_text_atomically


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "no space left"), (errno.EROFS, "cannot write"), (errno.EACCES, "cannot write")],
)
def test_disk_errors_name_the_path_and_the_remedy(tmp_path: Path, number: int, message: str) -> None:
    with pytest.raises(StorageError, match=rf"{message}.*{tmp_path}"), reporting_disk_errors(tmp_path):
        raise OSError(number, os.strerror(number))


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "config.toml"
    write_text_atomically(target, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text_atomically(target, "new \ud800")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
