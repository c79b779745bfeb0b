from typing import Any

import pytest

from elocution.config.load import load_config
from elocution.errors import ConfigError
from elocution.train.best import best_so_far, held_out_composite


def row(name: str, step: int, wer: float, **monitors: float) -> dict[str, Any]:
    return {"name": name, "step": step, "wer": wer, "runaway_share": 0.0, "monitors": monitors}


def test_the_composite_is_a_geometric_mean_of_what_was_measured() -> None:
    # Words 1 - 0.19 = 0.81 and endings 1: the root of 0.81. With likeness 0.729: the cube root of 0.81 * 0.729 = 0.59049.
    assert held_out_composite(row("step_1", 1, 0.19)) == pytest.approx(0.9)
    assert held_out_composite(row("step_1", 1, 0.19, speaker_similarity=0.729)) == pytest.approx(0.59049 ** (1 / 3))


def test_the_best_is_neither_the_base_nor_a_policy_that_collapsed() -> None:
    evaluations = [row("before", 0, 0.0), row("step_1", 1, 0.36), row("step_2", 2, 0.01), row("step_3", 3, 0.5)]
    alarms = [{"step": 2, "level": "stop"}, {"step": 1, "level": "warn"}]
    assert best_so_far(evaluations, alarms) == pytest.approx(0.8)
    assert best_so_far(evaluations[:1], []) == -1


@pytest.mark.parametrize("settings", [("eval.every=0",), ("eval.every=1", "train.parallel=fsdp")])
def test_going_back_needs_evaluations_and_whole_weights(settings: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match=r'eval.on_collapse = "roll_back" needs eval.every above 0'):
        load_config(None, ["eval.on_collapse=roll_back", *settings])
