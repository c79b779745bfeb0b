import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from elocution.errors import CheckpointError, StorageError
from elocution.rollout.sync.layout import link_file
from elocution.rollout.sync.manifest import Manifest, describe_tensor, file_digest, signature_of, verify_version
from elocution.rollout.sync.store import VersionStore


def fill(folder: Path, version: int) -> Manifest:
    tensors = {"a": torch.arange(12.0).reshape(3, 4), "b": torch.full((2,), float(version), dtype=torch.bfloat16)}
    save_file(tensors, folder / "weights.safetensors")
    (folder / "config.json").write_text("{}")
    entries = {name: describe_tensor(tensor, "weights.safetensors") for name, tensor in tensors.items()}
    return Manifest(version, "full", entries, {"config.json": file_digest(folder / "config.json")})


def test_s62_wherever_a_writer_dies_the_last_proven_version_is_whole_and_the_next_writer_succeeds(
    tmp_path: Path,
) -> None:
    script = Path(__file__).parent / "killed_writer.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "sync"), "100"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15


def test_a_version_has_a_folder_of_its_own_that_is_never_written_again(tmp_path: Path) -> None:
    store = VersionStore(tmp_path / "sync")
    names = [store.write(version, fill).path.name for version in (7, 7, -1, 7)]
    assert names == ["v000007", "v000007.1", "vrehearsal", "v000007.2"]


def test_older_versions_go_only_when_a_newer_is_proven(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    assert store.last_proven() is None
    first = store.write(1, fill)
    store.mark_proven(first.path)
    second = store.write(2, fill)
    assert first.path.is_dir()
    assert store.last_proven() is not None
    assert VersionStore(tmp_path).last_proven().path == first.path  # type: ignore[union-attr]
    store.mark_proven(second.path)
    assert not first.path.exists()
    assert store.last_proven().manifest == second.manifest  # type: ignore[union-attr]


def damage_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def edit_manifest(folder: Path, edit: Callable[[dict[str, object]], object]) -> None:
    content = json.loads((folder / "sync.json").read_text())
    edit(content)
    (folder / "sync.json").write_text(json.dumps(content))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a bit of a tensor": (lambda f: damage_byte(f / "weights.safetensors"), "content of [ab] is not what was written"),
    "a truncated file": (lambda f: os.truncate(f / "weights.safetensors", 100), "cannot read .*weights.safetensors"),
    "a lost file": (lambda f: (f / "config.json").unlink(), r"files missing: \['config.json'\]"),
    "a further file": (lambda f: (f / "more.safetensors").touch(), r"too many: \['more.safetensors'\]"),
    "another config": (lambda f: (f / "config.json").write_text("[]"), "config.json is not what was written"),
    "a tensor too many": (
        lambda f: save_file({"a": torch.zeros(1), "c": torch.zeros(1)}, f / "weights.safetensors"),
        r"tensors missing: \['b'\], too many: \['c'\]",
    ),
    "another shape": (
        lambda f: edit_manifest(f, lambda c: c["tensors"]["a"].update(shape=[4, 3])),  # type: ignore[index]
        r"a is float32 \[3, 4\], not float32 \[4, 3\]",
    ),
    "another type": (
        lambda f: edit_manifest(f, lambda c: c["tensors"]["b"].update(dtype="float16")),  # type: ignore[index]
        r"b is bfloat16 \[2\], not float16 \[2\]",
    ),
    "no manifest": (lambda f: (f / "sync.json").unlink(), "is no synced version"),
    "a later format": (lambda f: edit_manifest(f, lambda c: c.update(format=9)), "has format 9, this version reads"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_s82_a_damaged_version_is_found_by_reading_it(tmp_path: Path, damage: str) -> None:
    store = VersionStore(tmp_path)
    path = store.write(1, fill).path
    store.mark_proven(path)
    verify_version(path)
    do_damage, message = DAMAGES[damage]
    do_damage(path)
    with pytest.raises(CheckpointError, match=message):
        store.last_proven()


def test_files_that_this_process_has_read_are_not_read_again_unless_they_have_changed(tmp_path: Path) -> None:
    path = VersionStore(tmp_path).write(1, fill).path
    weights = path / "weights.safetensors"
    damage_byte(weights)
    verify_version(path, read_before=[signature_of(weights)])  # as of now: nothing is read
    before = signature_of(weights)
    os.utime(weights, ns=(0, before.mtime_ns + 1))
    with pytest.raises(CheckpointError, match="not what was written"):
        verify_version(path, read_before=[before])


def test_a_version_whose_files_are_not_what_should_be_written_is_not_kept(tmp_path: Path) -> None:
    """As by names or values that the writer got wrong on the way to the disk."""

    def wrong(folder: Path, version: int) -> Manifest:
        manifest = fill(folder, version)
        save_file({"a": torch.zeros(3, 4), "b": torch.zeros(2).bfloat16()}, folder / "weights.safetensors")
        return manifest

    store = VersionStore(tmp_path)
    with pytest.raises(CheckpointError, match="not what was written"):
        store.write(1, wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file"):
        VersionStore(tmp_path / "file" / "sync")


def test_a_file_on_another_disk_is_linked_by_name(tmp_path: Path) -> None:
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs /dev/shm on a file system of its own")
    with tempfile.TemporaryDirectory(dir=shm) as other:
        source = Path(other) / "weights"
        source.write_text("content")
        link_file(source, tmp_path / "near")
        assert (tmp_path / "near").is_symlink()
        assert (tmp_path / "near").read_text() == "content"
        assert signature_of(tmp_path / "near") == signature_of(source)
    own = tmp_path / "own"
    own.write_text("content")
    (tmp_path / "name").symlink_to(own)  # as a cache of downloads has it
    link_file(tmp_path / "name", tmp_path / "second")
    assert not (tmp_path / "second").is_symlink()
    assert (tmp_path / "second").samefile(own)
