from pathlib import Path

from elocution.assets import CHECKSUMS, describe_checksums, find_damage
from elocution.cli.doctor import examine


def test_the_checksums_of_the_shipped_files_are_current() -> None:
    assert CHECKSUMS.read_text(encoding="utf-8") == describe_checksums(CHECKSUMS.parent), "run: make docs"


def test_an_altered_and_an_absent_file_are_both_found(tmp_path: Path) -> None:
    for name in ("whole", "altered", "absent"):
        (tmp_path / name).write_text(name)
    sums = tmp_path / CHECKSUMS.name
    sums.write_text(describe_checksums(tmp_path))
    assert find_damage(sums) == []
    (tmp_path / "altered").write_text("altere")
    (tmp_path / "absent").unlink()
    assert find_damage(sums) == ["absent is missing", "altered is altered or truncated"]


def test_absent_checksums_are_damage_too(tmp_path: Path) -> None:
    assert find_damage(tmp_path / CHECKSUMS.name) == ["SHA256SUMS is missing"]


def test_core_packages_come_from_the_metadata_and_extras_are_not_needed() -> None:
    findings = {finding.subject: finding for finding in examine()}
    assert {"torch", "pebble", "tomli-w", "shipped files", "local ports"} <= findings.keys()
    assert findings["tomli-w"].is_needed
    assert "hibari-tts" not in findings
    assert not findings["extra tiny-build"].is_needed
