"""The reward's own examination: AUC by hand, controls that spoil, and the command on real speech."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from elocution.cli.main import app
from elocution.errors import DataError
from elocution.eval.separability import CONTROLS, ScoredClip, area_under_curve, score_clips, score_labelled, summarize
from elocution.types import Audio, Rollout, Score, Utterance, Voice

SPEECH = Path(__file__).parents[2] / "data" / "speech"


@pytest.mark.parametrize(
    ("better", "worse", "area"),
    [([2, 3], [0, 1], 1.0), ([0, 1], [2, 3], 0.0), ([1, 1], [1, 1], 0.5), ([1, 3], [2, 0], 0.75), ([1], [1, 0], 0.75)],
)
def test_the_area_by_hand(better: list[float], worse: list[float], area: float) -> None:
    assert area_under_curve(better, worse) == area


def test_an_area_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to compare"):
        area_under_curve([], [1.0])


class Loudest:
    """Gives the level; fails on silence."""

    def __call__(self, rollouts: list[Rollout]) -> list[Score]:
        levels = [float(np.abs(rollout.audio.samples).mean()) for rollout in rollouts if rollout.audio]
        return [
            Score(level, parts={"level": level, "twice": 2 * level, "same": 1.0})
            if level
            else Score(None, error="none")
            for level in levels
        ]


class OwnVoice:
    """Gives 1 to a clip in the voice that was asked for: its level is that voice's name."""

    def __call__(self, rollouts: list[Rollout]) -> list[Score]:
        asked = [float(rollout.utterance.voice.id) for rollout in rollouts if rollout.utterance.voice]
        levels = [float(np.abs(rollout.audio.samples).max()) for rollout in rollouts if rollout.audio]
        return [Score(float(abs(a - b) < 0.01)) for a, b in zip(asked, levels, strict=True)]


def test_clips_that_name_voices_are_also_asked_for_in_the_wrong_one() -> None:
    clips = [
        (
            Utterance(f"clip-{index}", "a b", voice=Voice(f"0.{index}", "", np.zeros((0, 1), np.int64))),
            Audio(np.full(800, 0.1 * index, dtype=np.float32), 16_000),
        )
        for index in range(1, 5)
    ]
    scored, clean_s = score_clips(OwnVoice(), clips)  # type: ignore[arg-type]
    controls = summarize(scored, clean_s)["controls"]
    assert controls["clean"]["mean"] == 1
    assert (controls["wrong voice"]["mean"], controls["wrong voice"]["auc_of_clean"]) == (0, 1)


def test_a_summary_counts_compares_and_correlates() -> None:
    clips = [
        (Utterance(f"clip-{index}", "a b"), Audio(np.full(8000, 0.1 * (index + 1), dtype=np.float32), 16_000))
        for index in range(4)
    ]
    scored, clean_s = score_clips(Loudest(), clips)  # type: ignore[arg-type]
    assert len(scored) == 4 * (len(CONTROLS) - 1)  # no voice was asked for, so none is wrong
    summary = summarize(scored, clean_s)
    assert summary["controls"]["silent"] == {
        "clips": 4,
        "unscored": 4,
        "mean": None,
        "std": None,
        "error_rates": {},
        "auc_of_clean": None,
    }
    assert summary["controls"]["reversed"]["auc_of_clean"] == 0.5
    assert summary["controls"]["wrong words"]["auc_of_clean"] == 0.5
    assert summary["controls"]["noisy"]["auc_of_clean"] < 0.5  # this reward likes noise, and that is shown
    assert summary["saturated_share"] == 0.25
    assert summary["correlations"] == {"level ~ twice": pytest.approx(1.0)}
    assert summary["seconds_per_clip"] == clean_s / 4


def test_s16_parts_that_some_clips_lack_are_correlated_over_the_others() -> None:
    parts = [{"words": 0.1, "voice": 0.3}, {"words": 0.9}, {"words": 0.2, "voice": 0.2}, {"words": 0.3, "voice": 0.1}]
    scored = [ScoredClip(str(index), "clean", "a", 1.0, Score(0.5, parts=own)) for index, own in enumerate(parts)]
    assert summarize(scored, 1.0)["correlations"] == {"words ~ voice": pytest.approx(-1.0)}


def test_s01_s06_the_command_shows_that_the_default_reward_separates_real_speech(tmp_path: Path) -> None:
    folder = tmp_path / "clips"
    folder.mkdir()
    for file in sorted(SPEECH.glob("*.flac"))[:3]:
        shutil.copy(file, folder)
        (folder / f"{file.stem}.txt").write_text(file.stem.replace("-", " "))
    output = tmp_path / "scores.jsonl"
    result = CliRunner().invoke(app, ["score", str(folder), "--output", str(output), "--set", "reward.workers=1"])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    values = {control: [row["value"] for row in rows if row["control"] == control] for control in CONTROLS}
    assert values.pop("wrong voice") == []  # the recordings name no voice
    assert values["silent"] == [0.0] * 3
    spoiled = values.keys() - {"clean", "higher voice"}  # this reward listens for words, whoever says them
    assert all(area_under_curve(values["clean"], values[control]) == 1.0 for control in spoiled)
    assert "1.000" in result.output
    assert "x real time" in result.output


def test_recordings_that_say_what_is_wrong_with_them_are_compared_as_they_are() -> None:
    clips = [
        (Utterance(name, "a b"), Audio(np.full(8000, level, dtype=np.float32), 16_000))
        for name, level in (("quiet", 0.1), ("fine", 0.4), ("loud", 0.9), ("good", 0.5))
    ]
    scored, listening_s = score_labelled(Loudest(), clips, ["too quiet", "", "too loud", ""])  # type: ignore[arg-type]
    assert [(clip.id, clip.control) for clip in scored] == [
        ("fine", "clean"),
        ("good", "clean"),
        ("loud", "too loud"),
        ("quiet", "too quiet"),
    ]
    controls = summarize(scored, listening_s)["controls"]
    assert (controls["too quiet"]["auc_of_clean"], controls["too loud"]["auc_of_clean"]) == (1.0, 0.0)
    with pytest.raises(DataError, match="leave it out where nothing is wrong"):
        score_labelled(Loudest(), clips[:1], ["too quiet"])  # type: ignore[arg-type]


def test_the_command_takes_recordings_that_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    files = sorted(SPEECH.glob("*.flac"))
    rows = [{"audio": str(file), "text": file.stem.replace("-", " ")} for file in files[:2]]
    rows.append({"audio": str(files[2]), "text": files[3].stem.replace("-", " "), "control": "wrong text"})
    manifest = tmp_path / "clips.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = CliRunner().invoke(app, ["score", str(manifest), "--set", "reward.workers=1"])
    assert result.exit_code == 0, result.output
    assert re.search(r"wrong text +1 +0 .* 1\.000", result.output)
    assert "reversed" not in result.output


def test_a_single_clip_has_no_wrong_words(tmp_path: Path) -> None:
    file = next(SPEECH.glob("*.flac"))
    shutil.copy(file, tmp_path)
    (tmp_path / f"{file.stem}.txt").write_text("one")
    result = CliRunner().invoke(app, ["score", str(tmp_path)])
    assert isinstance(result.exception, DataError)
    assert "at least 2" in str(result.exception)
