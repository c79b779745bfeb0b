"""The README's commands, as they stand there, run in their order in an empty folder."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# What a reader brings: a config of their own, small enough for a test, and prompts.
MY_TOML = """
[rollout]
group_size = 2
[train]
prompts_per_step = 1
save_every = 60
[eval]
sentences = 2
probe_sentences = 1
"""
# These take minutes, do not end, or need another model and its prompts; that they are understood is seen from their help.
LONG = {
    "elocution train",
    "elocution eval --compare evals/base evals/mine",
    "elocution serve rewards",
    "elocution serve tts --model runs/mine/best",
    "elocution watch runs/mine",
    "elocution verl my.toml --dry-run",
    "elocution tiny build --output build/tiny",
}


def commands() -> list[str]:
    block = re.search(r"## Use\n\n```\n(.*?)```", README, re.DOTALL)
    assert block is not None
    return [line.split("  #")[0].strip() for line in block[1].splitlines()]


def test_the_use_section_names_every_command_of_the_program() -> None:
    assert len(commands()) >= 9
    assert commands()[0] == "elocution train"
    assert set(commands()) >= LONG


@pytest.mark.parametrize("target", ["demo", "test", "check", "fix", "bench"])
def test_the_make_targets_that_the_readme_names_exist(target: str) -> None:
    assert f"make {target}" in README
    dry = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False)
    assert dry.returncode == 0, dry.stderr


def test_every_command_works_as_written(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text(MY_TOML, encoding="utf-8")
    (tmp_path / "prompts.jsonl").write_text('{"text": "the doctor visited the school"}\n', encoding="utf-8")
    (tmp_path / "recordings").mkdir()
    for file in sorted((ROOT / "tests" / "data" / "speech").glob("*.flac"))[:2]:
        shutil.copy(file, tmp_path / "recordings")
        (tmp_path / "recordings" / f"{file.stem}.txt").write_text(file.stem.replace("-", " "), encoding="utf-8")
    for command in commands():
        program, *arguments = shlex.split(command)
        assert program == "elocution"
        if command in LONG:
            arguments = [*(word for word in arguments if not word.startswith("-") and "/" not in word), "--help"]
        done = subprocess.run(
            [sys.executable, "-m", "elocution", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "runs" / "mine" / "report.html").is_file()
    assert (tmp_path / "said.wav").is_file()
