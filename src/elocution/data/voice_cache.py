"""The codes of recordings on disk, so that a later run does not encode them again."""

import hashlib
import io
import logging
import os
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elocution.assets import describe_checksums, resolve_path
from elocution.config.tree import CodecConfig
from elocution.errors import StorageError
from elocution.files import reporting_disk_errors, write_bytes_atomically

__all__ = ["VoiceCache", "open_voice_cache"]

logger = logging.getLogger(__name__)

_FORMAT = b"elocution voice codes 1\n"
_DIGEST = hashlib.sha256().digest_size


def open_voice_cache(folder: str, codec: CodecConfig) -> "VoiceCache":
    """The codes that `codec` gave before, in `folder`, or if that is empty in the user's own cache folder."""
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elocution" / "voices"
    path = resolve_path(codec.path)
    return VoiceCache(resolve_path(folder) if folder else own, lambda: f"{codec.type}\n{describe_checksums(path)}")


class VoiceCache:
    """A file in `folder` for each recording and codec, whole or absent, and checked before it is used."""

    def __init__(self, folder: Path, identity: Callable[[], str]) -> None:
        """`identity` tells the codec from any other; it is asked once, when the first recording is looked for."""
        self._folder, self._identify = folder, identity
        self._is_closed = False

    def get(self, recording: bytes) -> NDArray[np.int64] | None:
        """The codes of the bytes of a recording, None if they are not there or damaged. Shapes: [F, Q]."""
        path = self._path(recording)
        try:
            written = path.read_bytes()
        except OSError:
            return None
        digest, content = written[:_DIGEST], written[_DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            logger.warning("%s is damaged; its voice is encoded again", path)
            return None
        codes: NDArray[np.int64] = np.load(io.BytesIO(content), allow_pickle=False)
        return codes

    def put(self, recording: bytes, codes: NDArray[np.int64]) -> None:
        """Keeps `codes`; where that is not possible, it is said once and not tried again."""
        if self._is_closed:
            return
        content = io.BytesIO()
        np.save(content, codes)
        try:
            with reporting_disk_errors(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
            write_bytes_atomically(
                self._path(recording), hashlib.sha256(content.getvalue()).digest() + content.getvalue()
            )
        except StorageError as error:
            self._is_closed = True
            logger.warning("the codes of voices are not kept for later runs: %s", error)

    def _path(self, recording: bytes) -> Path:
        key = hashlib.sha256(_FORMAT + self._codec + hashlib.sha256(recording).digest())
        return self._folder / f"{key.hexdigest()}.codes"

    @cached_property
    def _codec(self) -> bytes:
        return hashlib.sha256(self._identify().encode()).digest()
