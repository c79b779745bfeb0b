import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from elocution.measures.hama import ctc_nll


def test_two_frames_worked_by_hand() -> None:
    # One target over two frames with p(blank) = 1/4, p(a) = 3/4: paths aa, a-, -a = 9/16 + 3/16 + 3/16.
    logprobs = np.log(np.array([[0.25, 0.75], [0.25, 0.75]]))
    assert ctc_nll(logprobs, [1], blank=0) == pytest.approx(-math.log(15 / 16))


@pytest.mark.parametrize("targets", [[1], [1, 2], [2, 2], [1, 2, 1, 3]])
def test_equals_torch_and_the_sum_over_all_paths(targets: list[int]) -> None:
    frames = np.log(np.random.default_rng(0).dirichlet(np.ones(4), size=6))
    ours = ctc_nll(frames, targets, blank=0)
    theirs = F.ctc_loss(
        torch.from_numpy(frames)[:, None],
        torch.tensor([targets]),
        torch.tensor([len(frames)]),
        torch.tensor([len(targets)]),
        blank=0,
        reduction="sum",
    )
    assert ours == pytest.approx(theirs.item())
    total = 0.0
    for path in itertools.product(range(4), repeat=6):
        collapsed = [label for label, _ in itertools.groupby(path) if label != 0]
        if collapsed == targets:
            total += math.exp(sum(frames[t, label] for t, label in enumerate(path)))
    assert ours == pytest.approx(-math.log(total))


def test_a_clip_too_short_for_the_text_is_finite_and_huge() -> None:
    assert ctc_nll(np.log(np.full((2, 4), 0.25)), [1, 2, 3], blank=0) > 1e8
