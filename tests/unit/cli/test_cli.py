import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elocution.cli.main import app, main
from elocution.errors import ElocutionError
from elocution.testing.run_directory import write_sample_run

runner = CliRunner()


def test_help_names_every_command() -> None:
    shown = runner.invoke(app, ["--help"]).output
    for command in ("train", "generate", "convert", "report", "doctor", "data", "serve", "tiny"):
        assert command in shown


def test_version() -> None:
    assert runner.invoke(app, ["--version"]).output == "elocution 0.1.0\n"


def test_dry_run_prints_config_and_arithmetic_and_makes_nothing(tmp_path: Path) -> None:
    result = runner.invoke(app, ["train", "--dry-run", "--output-dir", str(tmp_path / "run"), "--set", "train.steps=5"])
    assert result.exit_code == 0
    assert "steps = 5" in result.output
    assert "16 prompts x 8 completions = 128 completions" in result.output
    assert not (tmp_path / "run").exists()


def test_dry_run_counts_the_prompts_of_both_files() -> None:
    shown = runner.invoke(app, ["train", "--dry-run"]).output
    assert "data.train: 2000 prompts" in shown
    assert "data.held_out: 600 prompts" in shown


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.family=lasa", "there is no model family 'lasa'; did you mean 'llasa'?"),
        ("codec.type=tony", "there is no codec 'tony'; did you mean 'tiny'?"),
        ("reward.type=wer", "there is no reward 'wer'"),
        ("reward.asr=pocketsphinx-bigrams", "did you mean 'pocketsphinx-bigram'?"),
        ("eval.judge=pocketsphinx", "there is no recogniser 'pocketsphinx'"),
        ("data.train={bad}", "bad.jsonl:2: malformed JSON (column "),
        ("data.train={few}", "train.prompts_per_step is 16, but data.train has only 1 usable prompts"),
    ],
)
def test_dry_run_refuses_what_the_run_would_refuse(setting: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"text": "one"}\n{"text": "two\n')
    (tmp_path / "few.jsonl").write_text('{"text": "one"}\n')
    given = setting.format(bad=tmp_path / "bad.jsonl", few=tmp_path / "few.jsonl")
    result = runner.invoke(app, ["train", "--dry-run", "--set", given])
    assert isinstance(result.exception, ElocutionError)
    assert message in str(result.exception)


def test_dry_run_lists_a_class_of_ones_own_that_is_not_there() -> None:
    result = runner.invoke(app, ["train", "--dry-run", "--set", "codec.type=absent_module:Codec"])
    assert result.exit_code == 0
    assert "not there yet: codec.type = 'absent_module:Codec'" in result.output


def test_validate_with_a_model_lists_words_that_it_was_never_taught(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"text": "the doctor visited the school"}\n{"text": "the zebra visited the school"}\n')
    assert runner.invoke(app, ["data", "validate", str(prompts)]).exit_code == 0
    result = runner.invoke(app, ["data", "validate", str(prompts), "--model", "builtin:tiny-llasa"])
    assert isinstance(result.exception, ElocutionError)
    assert f"{prompts}:2: words outside the checkpoint's vocabulary: zebra" in result.output


@pytest.mark.parametrize(
    "command",
    [
        ["generate", "--text", "one", "--output", "said.wav"],
        ["data", "validate", "prompts.jsonl"],
        ["data", "tokenize", "clips", "--output", "codes"],
        ["data", "prepare", "cosyvoice2", "rows.jsonl", "--to", "parquet"],
    ],
)
@pytest.mark.parametrize(("code", "hint"), [("english", "did you mean 'en'?"), ("xx", "known are af, am, ar")])
def test_an_unknown_language_is_refused_before_any_work(
    command: list[str], code: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = runner.invoke(app, [*command, "--language", code])
    assert isinstance(result.exception, ElocutionError), result.output
    assert str(result.exception).startswith(f"there is no language '{code}'; give its ISO 639-1 code: {hint}")
    assert not any(tmp_path.iterdir())


def test_resume_needs_a_run() -> None:
    result = runner.invoke(app, ["train", "--resume"])
    assert result.exit_code == 2
    assert "--output-dir" in result.output


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["train", "absent.toml"], 2, "error: there is no config file absent.toml"),
        (
            ["train", "--set", "train.stps=1"],
            2,
            "error: --set train.stps=1: unknown key 'train.stps'; did you mean 'steps'?",
        ),
        (["report", "absent"], 1, "error: absent is not a run directory"),
        (["data", "validate", "absent.jsonl"], 1, "error: cannot read the prompt file absent.jsonl"),
    ],
)
def test_an_expected_error_is_one_message_and_a_status(
    arguments: list[str], status: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["elocution", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == status
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


def test_trouble_of_the_machine_is_one_message_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    too_long = tmp_path / ("n" * 300)
    monkeypatch.setattr("sys.argv", ["elocution", "report", str(too_long)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    assert capsys.readouterr().err.startswith("error: [Errno 36] File name too long: ")


def test_a_broken_package_is_one_message_that_names_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sample_run(tmp_path / "run", steps=1)
    monkeypatch.setitem(sys.modules, "elocution.report.page", None)  # what a failed import leaves
    monkeypatch.setattr("sys.argv", ["elocution", "report", str(tmp_path / "run")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 1
    shown = capsys.readouterr().err
    assert shown.startswith("error: import of elocution.report.page halted")
    assert shown.endswith("`elocution doctor` says what is missing or broken\n")


def test_debug_shows_where_an_error_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["elocution", "--debug", "report", "absent"])
    with pytest.raises(ElocutionError):
        main()


def test_validate_lists_bad_rows_by_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"text": "one"}\n{"text": ""}\n')
    result = runner.invoke(app, ["data", "validate", str(path)])
    assert result.exit_code == 1
    assert f"{path}:2: the text is missing or empty" in result.output
    assert "1 usable rows, 1 bad" in result.output
