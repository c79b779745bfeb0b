import numpy as np

from elocution.train.learner import EngineMismatch, UpdateStats
from elocution.train.recorder import reward_metrics, update_metrics
from elocution.types import Completion, FinishReason, Outcome, Rollout, RolloutGroup, Score, Utterance

STATS = UpdateStats(
    policy_loss=0.1,
    kl=0.2,
    exact_kl=None,
    entropy=0.3,
    clipped_share=0.4,
    max_ratio_deviation=0.5,
    grad_norm=0.6,
    num_tokens=7,
)


def with_mismatch(mean: float, largest: float, share: float) -> UpdateStats:
    mismatch = EngineMismatch(mean=mean, max=largest, bounded_share=share)
    return UpdateStats(**{**vars(STATS), "mismatch": mismatch})


def test_the_engines_mismatch_is_averaged_over_updates_and_its_worst_kept() -> None:
    metrics = update_metrics([with_mismatch(0.01, 0.5, 0.0), with_mismatch(0.03, 0.2, 0.1)])
    assert metrics["engine/mismatch_mean_nats"] == 0.02
    assert metrics["engine/mismatch_max_nats"] == 0.5
    assert metrics["engine/bounded_weights_share"] == 0.05


def test_without_importance_weights_there_is_no_mismatch_to_report() -> None:
    for updates in ([STATS], []):
        metrics = update_metrics(updates)
        assert metrics["engine/mismatch_mean_nats"] is None
        assert metrics["engine/mismatch_max_nats"] is None
        assert metrics["engine/bounded_weights_share"] is None


def test_s06_completions_that_no_recogniser_listened_to_are_counted() -> None:
    asked = Utterance("u", "one")
    completion = Completion(np.zeros((1, 1), np.int64), np.zeros((1, 1), np.float32), FinishReason.STOP, 0)
    rollout = Rollout(asked, completion, np.zeros((3, 1), np.int64), None, Outcome.SPEECH)
    gated = {"wer": 1.0, "empty_transcript": 1.0, "gated": 1.0}
    scores = (Score(1.0, {"wer": 0.0}), Score(0.0, gated), Score(0.0, gated), Score(None, error="down"))
    group = RolloutGroup(asked, np.zeros((1, 1), np.int64), (rollout,) * 4, scores)
    assert reward_metrics([group], [True])["scores/gated_share"] == 0.5
