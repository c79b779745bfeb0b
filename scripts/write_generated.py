"""Writes what is made from the source and kept in the repository: docs/configuration.md and the assets' checksums."""

from pathlib import Path

from elocution.assets import CHECKSUMS, describe_checksums
from elocution.config.reference import describe_config

if __name__ == "__main__":
    docs = Path(__file__).parent.parent / "docs"
    docs.mkdir(exist_ok=True)
    (docs / "configuration.md").write_text(describe_config(), encoding="utf-8")
    CHECKSUMS.write_text(describe_checksums(CHECKSUMS.parent), encoding="utf-8")
