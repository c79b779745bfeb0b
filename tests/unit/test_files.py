import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elocution.errors import StorageError
from elocution.files import reporting_disk_errors, write_text_atomically


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "no space left"),
        *((number, "cannot write") for number in (errno.EROFS, errno.EACCES, errno.EIO, errno.ENAMETOOLONG)),
    ],
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


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Sets the umask for the length of a test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077, 0o000])
def test_a_new_file_has_the_mode_that_open_would_give(tmp_path: Path, umask: Callable[[int], int], mask: int) -> None:
    umask(mask)
    (tmp_path / "opened").touch()
    write_text_atomically(tmp_path / "written", "text")
    assert (tmp_path / "written").stat().st_mode == (tmp_path / "opened").stat().st_mode


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_replaced_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    target = tmp_path / "config.toml"
    target.touch()
    target.chmod(mode)
    write_text_atomically(target, "text")
    assert stat.S_IMODE(target.stat().st_mode) == mode


def test_a_protected_file_is_refused_and_stays(tmp_path: Path) -> None:
    target = tmp_path / "precious.wav"
    target.write_text("old")
    target.chmod(0o444)
    if os.access(target, os.W_OK):
        pytest.skip("needs a user whom modes bind, root may write anything")
    with pytest.raises(StorageError, match="is protected"):
        write_text_atomically(target, "new")
    assert target.read_text() == "old"


def test_a_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    link.symlink_to("target")
    write_text_atomically(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_the_longest_name_that_a_folder_takes_can_be_written(tmp_path: Path) -> None:
    write_text_atomically(tmp_path / ("n" * 255), "text")
    with pytest.raises(StorageError, match="cannot write"):
        write_text_atomically(tmp_path / ("n" * 256), "text")


def test_a_folder_and_a_pipe_are_refused_and_stay(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # stands for a device, which only root can make
    for path, kind in ((tmp_path, "a folder"), (pipe, "a device or pipe")):
        with pytest.raises(StorageError, match=f"cannot write {path}: it is {kind}"):
            write_text_atomically(path, "text")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]
