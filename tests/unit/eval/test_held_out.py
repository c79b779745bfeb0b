from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from elocution.errors import RewardUnavailable
from elocution.eval.held_out import HeldOutEvaluator
from elocution.rollout.speak import SpokenGroup
from elocution.types import Audio, Completion, FinishReason, Outcome, Rollout, Utterance

TEXTS = ["one three", "six nine", "the house", "the school"]
OUTCOMES = [Outcome.SPEECH, Outcome.EMPTY, Outcome.RUNAWAY, Outcome.SPEECH]


class ScriptedSpeaker:
    """Answers each utterance with the outcome of its place, and keeps the seeds it was given."""

    def __init__(self) -> None:
        self.seeds: list[Sequence[tuple[int, ...]]] = []

    def speak(self, utterances: Sequence[Utterance], seeds: Sequence[Sequence[tuple[int, ...]]]) -> list[SpokenGroup]:
        self.seeds += seeds
        groups = []
        for utterance, outcome in zip(utterances, OUTCOMES, strict=True):
            audio = None if outcome is Outcome.EMPTY else Audio(np.full(16_000, 0.1, np.float32), 16_000)
            ids = np.zeros((1, 1), np.int64)
            completion = Completion(ids, np.zeros((1, 1), np.float32), FinishReason.STOP, 5)
            groups.append(SpokenGroup(utterance, ids[:, 0], (Rollout(utterance, completion, ids, audio, outcome),)))
        return groups


def evaluator(
    path: Path, transcripts: list[str | Exception], speaker: ScriptedSpeaker, **options: object
) -> HeldOutEvaluator:
    return HeldOutEvaluator(
        [Utterance(f"id {i}", text) for i, text in enumerate(TEXTS)],
        speaker,  # type: ignore[arg-type]
        lambda clips, on_progress: transcripts[: len(clips)],
        judge="scripted",
        temperature=1.0,
        seed=3,
        bootstrap_samples=200,
        num_probes=2,
        run=path,
        **options,  # type: ignore[arg-type]
    )


def test_empty_speech_deletes_all_words_and_a_judges_failure_is_left_out_and_counted(tmp_path: Path) -> None:
    # Heard: "one", then (runaway) right, then a failure. The empty completion is never played to the judge.
    speaker = ScriptedSpeaker()
    heard: list[str | Exception] = ["One!", "the house", RuntimeError("judge broke")]
    row = evaluator(tmp_path, heard, speaker).evaluate("before", step=0, policy_version=0).row
    assert (row["num_sentences"], row["num_scored"]) == (4, 3)
    assert (row["substitutions"], row["deletions"], row["insertions"]) == (0, 3, 0)
    assert row["wer"] == pytest.approx(3 / 6)
    assert row["runaway_share"] == 0.25
    assert [probe["transcript"] for probe in row["probes"]] == ["one", ""]
    assert row["probes"][1]["audio"] is None
    assert (tmp_path / row["probes"][0]["audio"]).is_file()


def test_every_evaluation_uses_the_same_seeds_and_no_training_seed(tmp_path: Path) -> None:
    speaker = ScriptedSpeaker()
    measured = evaluator(tmp_path, ["one three", "the house", "the school"], speaker)
    measured.evaluate("before", step=0, policy_version=0)
    measured.evaluate("after", step=9, policy_version=9)
    assert speaker.seeds[:4] == speaker.seeds[4:]
    assert all(seed[0] >= 2**31 for seeds in speaker.seeds for seed in seeds)  # a run's seed is below


def test_edits_of_each_sentence_are_kept_in_their_order_for_pairs(tmp_path: Path) -> None:
    heard: list[str | Exception] = ["one", "the house", RuntimeError("judge broke")]
    row = evaluator(tmp_path, heard, ScriptedSpeaker()).evaluate("before", step=0, policy_version=0).row
    assert row["sentences"] == [(1, 2), (2, 2), (0, 2), None]


def test_likeness_is_a_monitor_where_it_is_measured(tmp_path: Path) -> None:
    heard: list[str | Exception] = ["one three", "the house", "the school"]
    for measured, monitor in ((0.7, {"speaker_similarity": 0.7}), (None, {})):
        options = {"has_monitors": True, "likeness": lambda rollouts, measured=measured: measured}
        row = evaluator(tmp_path, heard, ScriptedSpeaker(), **options).evaluate("x", step=0, policy_version=0).row
        assert {name: value for name, value in row["monitors"].items() if name == "speaker_similarity"} == monitor


def test_a_judge_that_always_fails_is_an_error_and_not_a_rate(tmp_path: Path) -> None:
    failing: list[str | Exception] = [RuntimeError("down")] * 3
    measured = evaluator(tmp_path, failing, ScriptedSpeaker())
    row = measured.evaluate("before", step=0, policy_version=0).row
    assert row["num_scored"] == 1  # the empty completion, which needs no judge
    OUTCOMES[1] = Outcome.SPEECH
    try:
        with pytest.raises(RewardUnavailable, match="failed on all 4"):
            evaluator(tmp_path, [RuntimeError("down")] * 4, ScriptedSpeaker()).evaluate("x", step=0, policy_version=0)
    finally:
        OUTCOMES[1] = Outcome.EMPTY
