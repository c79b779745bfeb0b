"""Publishes a second version again and again, each time ending without warning at another point of the file system.

Arguments: the folder of versions, and how many points to try at most. Prints how many points there were. Each attempt is
a process of its own, forked so that it need not import anything; what it leaves behind is checked by this one.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from elocution.rollout.sync.manifest import Manifest, describe_tensor, file_digest
from elocution.rollout.sync.store import VersionStore

EVENTS = {"open", "os.rename", "os.mkdir", "os.link", "os.remove", "os.rmdir", "shutil.rmtree", "tempfile.mkstemp"}
KILLED = 77


def publish(root: Path, version: int) -> None:
    def fill(folder: Path, version: int) -> Manifest:
        tensors = {}
        for number in range(3):
            tensor = torch.full((40, 3), float(10 * version + number))
            save_file({f"t{number}": tensor}, folder / f"{number}.safetensors")
            tensors[f"t{number}"] = describe_tensor(tensor, f"{number}.safetensors")
        os.link(root / "shared.json", folder / "config.json")
        return Manifest(version, "full", tensors, {"config.json": file_digest(root / "shared.json")})

    store = VersionStore(root)
    store.mark_proven(store.write(version, fill).path)


def die_at(root: Path, point: int) -> None:
    """Ends the process before it touches `root` for the time number `point`."""
    left = point

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in EVENTS and any(str(root) in str(argument) for argument in arguments):
            if left == 0:
                os._exit(KILLED)
            left -= 1

    sys.addaudithook(watch)


def main(root: Path, limit: int) -> int:
    for point in range(limit):
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        (root / "shared.json").write_text(json.dumps({"of": "every version"}))
        publish(root, 1)
        child = os.fork()
        if child == 0:
            die_at(root, point)
            publish(root, 2)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        proven = VersionStore(root).last_proven()
        assert proven is not None, point
        assert proven.manifest.version in (1, 2), point
        if status == 0:
            assert proven.manifest.version == 2
            return point
        assert status == KILLED, (point, status)
        publish(root, 2)  # the next run is not in the way of what is left
        again = VersionStore(root).last_proven()
        assert again is not None
        assert again.manifest.version == 2
        assert [path for path in root.iterdir() if path.name.startswith((".", "v"))] == [again.path], point
    raise SystemExit(f"more than {limit} points")


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), int(sys.argv[2])))
