"""`elocution eval` with real parts: a policy that speaks, recordings, saved transcripts, and what goes wrong."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from elocution.cli.main import app
from elocution.errors import ConfigError, DataError, ElocutionError, EvaluationError
from elocution.testing.run_directory import read_rows

SPEECH = Path(__file__).parents[1] / "data" / "speech"
# The cheaper recogniser judges here, and the other stands in the reward, which is not used.
JUDGE = ("reward.asr=pocketsphinx-open", "eval.judge=pocketsphinx-bigram", "reward.workers=1")
TEXTS = ("the doctor visited the school", "nine nine seven one")


def run(*arguments: str, settings: tuple[str, ...] = ()) -> Result:
    sets = [word for setting in (*JUDGE, *settings) for word in ("--set", setting)]
    return CliRunner().invoke(app, ["eval", *arguments, *sets])


def failure(result: Result, kind: type[ElocutionError]) -> str:
    assert isinstance(result.exception, kind), result.output
    return str(result.exception)


@pytest.fixture
def two_texts(tmp_path: Path) -> Path:
    path = tmp_path / "two.jsonl"
    rows = [{"id": f"t{number}", "text": text} for number, text in enumerate(TEXTS)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Path, Path]:
    """A folder of recordings, and the list that asks for them."""
    folder = tmp_path / "recorded"
    folder.mkdir()
    lines = []
    for number, file in enumerate(sorted(SPEECH.glob("*.flac"))[:3]):
        shutil.copy(file, folder / f"utt{number}.flac")
        shutil.copy(file, tmp_path / f"prompt{number}.flac")
        lines.append(f"utt{number}|words|prompt{number}.flac|{file.stem.replace('-', ' ').capitalize()}.")
    path = tmp_path / "list.lst"
    path.write_text("\n".join(lines))
    return folder, path


def test_a_policy_speaks_each_item_with_three_seeds_and_all_is_written_down(two_texts: Path, tmp_path: Path) -> None:
    output = tmp_path / "evaluation"
    result = run("builtin:tiny-llasa", "--set-name", str(two_texts), "--output", str(output))
    assert result.exit_code == 0, result.output
    assert "6 scored of 6" in result.output
    found = json.loads((output / "result.json").read_text())
    assert found["plan"]["seeds"] == found["summary"]["seeds"] == [0, 1, 2]
    assert found["plan"]["sampler"]["temperature"] == 1.0
    assert found["plan"]["recogniser"]["name"] == "pocketsphinx-bigram"
    assert found["plan"]["normalizers"] == {"spoken": "spoken-2", "seed_tts": "seed-tts-1", "simplifier": "opencc"}
    assert found["code"]["packages"]["pocketsphinx"]
    assert found["code"]["commit"]
    assert found["speed"]["batch_size"] == 128
    assert found["speed"]["real_time_factor"] > 0
    assert {"wer", "seed_tts_wer", "hit_limit_share", "rate", "f0_spread", "silence_share"} <= set(
        found["summary"]["metrics"]
    )
    rows = read_rows(output / "clips.jsonl")
    assert [(row["id"], row["seed"]) for row in rows] == [(f"t{i}", seed) for seed in range(3) for i in range(2)]
    assert all((output / row["audio"]).is_file() for row in rows)
    transcripts = {(row["id"], row["seed"]): row["transcript"] for row in rows}
    assert len({(output / row["audio"]).read_bytes() for row in rows}) == 6  # each seed says it in its own way

    # What was there is not made again: the lines of two clips are lost, as when a call is cut short in a third.
    made = {row["audio"]: (output / row["audio"]).stat().st_mtime_ns for row in rows}
    (output / "clips.jsonl").unlink()
    (output / "result.json").unlink()
    kept = "".join(json.dumps(row) + "\n" for row in rows[:4])
    (output / "clips-0.jsonl").write_text(kept + '{"id": "t1", "se')
    again = run("builtin:tiny-llasa", "--set-name", str(two_texts), "--output", str(output))
    assert again.exit_code == 0, again.output
    assert read_rows(output / "clips.jsonl") == rows
    assert json.loads((output / "result.json").read_text())["summary"] == found["summary"]
    touched = [name for name in made if (output / name).stat().st_mtime_ns != made[name]]
    assert touched == [row["audio"] for row in rows[4:]]

    other = run(
        "builtin:tiny-llasa", "--set-name", str(two_texts), "--output", str(output), settings=("eval.temperature=0.5",)
    )
    assert "holds an evaluation with another sampler" in failure(other, EvaluationError)

    # Its own audio, scored as recordings, gives its transcripts again.
    heard = tmp_path / "heard"
    result = run(str(output / "audio"), "--set-name", str(two_texts), "--output", str(heard))
    assert result.exit_code == 0, result.output
    assert {(row["id"], row["seed"]): row["transcript"] for row in read_rows(heard / "clips.jsonl")} == transcripts


def test_recordings_are_scored_with_likeness_and_quality_where_models_are_named(
    recorded: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = recorded
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    output = tmp_path / "evaluation"
    settings = ("eval.speaker=evaluation_parts:Level", "eval.quality=evaluation_parts:Steady")
    result = run(str(folder), "--set-name", str(path), "--language", "en", "--output", str(output), settings=settings)
    assert result.exit_code == 0, result.output
    assert "seed-tts-eval: WER 0.0 %" in result.output
    metrics = json.loads((output / "result.json").read_text())["summary"]["metrics"]
    assert metrics["speaker_similarity"]["value"] == pytest.approx(1)  # each is compared with itself
    assert metrics["quality"]["value"] == 4
    assert "hit_limit_share" not in metrics
    assert not (output / "audio").exists()


def test_missing_recordings_are_counted_before_anything_is_scored(recorded: tuple[Path, Path], tmp_path: Path) -> None:
    folder, path = recorded
    (folder / "utt1.flac").unlink()
    arguments = (str(folder), "--set-name", str(path), "--language", "en", "--output", str(tmp_path / "e"))
    assert "2 of 3 items of" in (message := failure(run(*arguments), DataError))
    assert "utt1 (there is no" in message
    assert not (tmp_path / "e").exists()
    result = run(*arguments, "--partial")
    assert result.exit_code == 0, result.output
    assert "2 scored of 3" in result.output
    found = json.loads((tmp_path / "e" / "result.json").read_text())
    assert (found["scored"], found["of"], list(found["left_out"])) == (2, 3, ["utt1"])


@pytest.mark.slow
def test_a_judge_that_fails_is_no_number_and_the_same_call_tries_again(
    recorded: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, path = recorded
    broken = tmp_path / "broken"
    broken.touch()
    monkeypatch.setenv("BROKEN", str(broken))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    arguments = (str(folder), "--set-name", str(path), "--language", "en", "--output", str(tmp_path / "e"))
    settings = ("eval.judge=evaluation_parts:FailingJudge",)
    message = failure(run(*arguments, settings=settings), EvaluationError)
    assert "scored of 3: " in message
    assert "RuntimeError: the judge is broken" in message
    found = json.loads((tmp_path / "e" / "result.json").read_text())
    assert 0 < found["scored"] < 3
    assert found["summary"]["metrics"]["wer"]["clips"] == found["scored"]
    broken.unlink()
    result = run(*arguments, settings=settings)
    assert result.exit_code == 0, result.output
    assert "3 scored of 3" in result.output


@pytest.mark.parametrize("form", ["jsonl", "public"])
def test_saved_transcripts_are_scored_without_listening(recorded: tuple[Path, Path], tmp_path: Path, form: str) -> None:
    _, path = recorded
    words = [line.split("|")[-1] for line in path.read_text().splitlines()]
    heard = [words[0], "", words[2].replace("the", "a")]
    saved = tmp_path / ("saved.jsonl" if form == "jsonl" else "wav_res_ref_text.wer")
    if form == "jsonl":
        saved.write_text(
            "".join(json.dumps({"id": f"utt{number}", "transcript": text}) + "\n" for number, text in enumerate(heard))
        )
    else:
        saved.write_text("".join(f"wavs/utt{n}.wav\t0\t{words[n]}\t{text}\t0\t0\t0\n" for n, text in enumerate(heard)))
    result = run(str(saved), "--set-name", str(path), "--language", "en", "--output", str(tmp_path / "e"))
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = read_rows(tmp_path / "e" / "clips.jsonl")
    assert [row["transcript"] for row in rows] == heard
    assert rows[0]["seed_tts"]["substitutions"] == 0
    assert rows[1]["seed_tts"]["deletions"] == rows[1]["seed_tts"]["reference_units"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"id": "utt0"}\n', "a.jsonl:1: expected an object with id and transcript"),
        ("a.jsonl", '{"id": "x", "transcript": "a"}\n' * 2, "two transcripts with the seed 0"),
        ("a.jsonl", "", "has no transcripts"),
        ("a.txt", "one\ttwo\n", "a.txt:1: 2 fields"),
    ],
)
def test_files_that_are_no_transcripts_are_refused(
    recorded: tuple[Path, Path], tmp_path: Path, name: str, content: str, message: str
) -> None:
    file = tmp_path / name
    file.write_text(content)
    assert message in failure(run(str(file), "--set-name", str(recorded[1]), "--language", "en"), DataError)


def test_s90_a_set_that_the_judge_or_the_policy_cannot_take_is_refused_with_a_count(tmp_path: Path) -> None:
    chinese = tmp_path / "zh.jsonl"
    chinese.write_text('{"text": "你好", "language": "zh"}\n')
    message = failure(run("builtin:tiny-llasa", "--set-name", str(chinese)), ConfigError)
    assert "hears en, but the set has texts in zh" in message
    unknown = tmp_path / "en.jsonl"
    unknown.write_text('{"text": "the zebra ran"}\n{"text": "the lady finished the dinner"}\n')
    message = failure(run("builtin:tiny-llasa", "--set-name", str(unknown)), DataError)
    assert "1 of 2 items of en can be scored" in message
    assert "zebra" in message


def test_texts_of_the_training_prompts_are_left_out(tmp_path: Path) -> None:
    trained = tmp_path / "train.jsonl"
    trained.write_text('{"text": "The lady finished the dinner!"}\n')
    wanted = tmp_path / "set.jsonl"
    wanted.write_text('{"text": "the lady finished the dinner"}\n')
    settings = (f"data.train={trained}",)
    result = run("builtin:tiny-llasa", "--set-name", str(wanted), settings=settings)
    assert "every text of" in failure(result, EvaluationError)
    wanted.write_text(wanted.read_text() + '{"text": "nine nine seven one"}\n')
    output = tmp_path / "e"
    result = run(
        *("builtin:tiny-llasa", "--set-name", str(wanted), "--output", str(output)),
        settings=(*settings, "eval.seeds=1"),
    )
    assert "1 items; 1 are also training prompts, left out" in result.output
    assert json.loads((output / "result.json").read_text())["plan"]["overlap"]["overlapping"] == 1


def test_what_is_nothing_to_evaluate_is_refused(tmp_path: Path) -> None:
    assert "there is no absent" in failure(run("absent"), EvaluationError)
    assert "is no run, checkpoint, model" in failure(run(str(tmp_path)), EvaluationError)
    assert "--sweep needs a run" in failure(run("builtin:tiny-llasa", "--sweep"), EvaluationError)
    assert run().exit_code == 2
    assert run("builtin:tiny-llasa", "--compare", "a", "b").exit_code == 2
    assert "holds no finished evaluation" in failure(run("--compare", "a", "b"), EvaluationError)


@pytest.mark.parametrize("is_at_work", [False, True])
def test_sigterm_ends_an_evaluation_with_one_line_and_no_result(
    two_texts: Path, tmp_path: Path, is_at_work: bool
) -> None:
    folder = tmp_path / "evaluation"
    sets = [word for setting in (*JUDGE, "eval.seeds=60") for word in ("--set", setting)]
    asked = ["builtin:tiny-llasa", "--set-name", str(two_texts), "--output", str(folder)]
    command = [sys.executable, "-m", "elocution", "eval", *asked, *sets]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("set two")
        while is_at_work and not (folder / "clips-0.jsonl").is_file():
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.05)
        process.terminate()
        _, shown = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert shown.splitlines()[-1] == "stopped by SIGTERM"
    assert "Traceback" not in shown
    assert not (folder / "result.json").exists()
