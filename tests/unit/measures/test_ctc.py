from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from elocution.measures.ctc import best_labels, ctc_nll

BLANK = 2


def _random_logprobs(frames: int, seed: int) -> NDArray[np.float64]:
    logits = np.random.default_rng(seed).normal(size=(frames, 3))
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))


def _collapsed(path: tuple[int, ...]) -> list[int]:
    kept = [label for position, label in enumerate(path) if position == 0 or label != path[position - 1]]
    return [label for label in kept if label != BLANK]


def test_two_frames_and_one_label_by_hand() -> None:
    # Label 0 in two frames: 00, 0-, -0. With p(0) = 0.6 then 0.3 and p(blank) = 0.4 then 0.7:
    # 0.6 * 0.3 + 0.6 * 0.7 + 0.4 * 0.3 = 0.72.
    with np.errstate(divide="ignore"):
        logprobs = np.log(np.array([[0.6, 0.0, 0.4], [0.3, 0.0, 0.7]]))
    assert ctc_nll(logprobs, [0], BLANK) == pytest.approx(-np.log(0.72))


@pytest.mark.parametrize("targets", [[0], [0, 1], [0, 0], [1, 0, 1], [1, 1, 0]])
def test_all_paths_that_collapse_to_the_targets_are_summed(targets: list[int]) -> None:
    logprobs = _random_logprobs(5, seed=len(targets))
    paths = [path for path in product(range(3), repeat=5) if _collapsed(path) == targets]
    summed = np.logaddexp.reduce([sum(logprobs[frame, label] for frame, label in enumerate(path)) for path in paths])
    assert ctc_nll(logprobs, targets, BLANK) == pytest.approx(-summed)


@pytest.mark.parametrize(("frames", "targets"), [(0, [0]), (1, [0, 1]), (2, [0, 0])])
def test_a_clip_too_short_for_the_targets_is_impossible(frames: int, targets: list[int]) -> None:
    assert ctc_nll(_random_logprobs(frames, seed=0), targets, BLANK) == np.inf


def test_long_clips_do_not_underflow() -> None:
    logprobs = np.full((2000, 3), -50.0)
    assert np.isfinite(ctc_nll(logprobs, [0, 1] * 50, BLANK))


def test_repeats_and_blanks_are_not_heard() -> None:
    best = [BLANK, 0, 0, BLANK, 0, 1, 1, BLANK]
    assert best_labels(np.eye(3)[best], BLANK) == [0, 0, 1]
    assert best_labels(np.eye(3)[[BLANK] * 4], BLANK) == []
