import pytest
import torch
from torch import Tensor

from elocution.grpo.weights import Aggregation, StepTotals, cell_weights, parse_channel_weights

# Two completions of one channel: 3 cells and finished, 1 cell and cut off.
MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]], dtype=torch.bool)[..., None]
FINISHED = torch.tensor([True, False])
TOTALS = StepTotals.of([MASK], [FINISHED])


def rows_of(weights: Tensor) -> list[list[float]]:
    return weights[..., 0].tolist()


def test_totals_count_completions_stops_and_cells_of_each_channel() -> None:
    grid = torch.stack([MASK[..., 0], MASK[..., 0].roll(1, dims=1) & MASK[..., 0]], dim=2)
    assert StepTotals.of([grid, grid[:1]], [FINISHED, FINISHED[:1]]) == StepTotals(3, 2, (7, 4))


@pytest.mark.parametrize(
    ("aggregation", "wanted"),
    [
        ("token", [[1 / 4, 1 / 4, 1 / 4, 0], [1 / 4, 0, 0, 0]]),
        ("sequence", [[1 / 6, 1 / 6, 1 / 6, 0], [1 / 2, 0, 0, 0]]),
        ("fixed", [[1 / 20, 1 / 20, 1 / 20, 0], [1 / 20, 0, 0, 0]]),
    ],
)
def test_aggregations_worked_by_hand(aggregation: Aggregation, wanted: list[list[float]]) -> None:
    weights = cell_weights(MASK, FINISHED, TOTALS, aggregation=aggregation, fixed_length=10)
    assert rows_of(weights) == [pytest.approx(row) for row in wanted]


def test_whole_stops_are_averaged_over_stops_and_the_rest_over_the_rest() -> None:
    weights = cell_weights(MASK, FINISHED, TOTALS, aggregation="token", whole_stops=True)
    assert rows_of(weights) == [pytest.approx(row) for row in [[1 / 3, 1 / 3, 1, 0], [1 / 3, 0, 0, 0]]]


def test_whole_stops_weigh_what_their_channel_weighs() -> None:
    # One finished completion, channels 1 : 3. Of the quarter of channel 0, one part for its two other cells, one for the
    # stop; the other channel is as ever.
    mask = torch.ones(1, 3, 2, dtype=torch.bool)
    finished = torch.ones(1, dtype=torch.bool)
    totals = StepTotals.of([mask], [finished])
    weights = cell_weights(mask, finished, totals, aggregation="token", channel_weights=(1.0, 3.0), whole_stops=True)
    assert weights[0, :, 0].tolist() == pytest.approx([1 / 8, 1 / 8, 1 / 4])
    assert weights[0, :, 1].tolist() == pytest.approx([1 / 4, 1 / 4, 1 / 4])


def test_a_longer_completion_does_not_dilute_its_stop() -> None:
    for length in (2, 50):
        mask = torch.ones(1, length, 1, dtype=torch.bool)
        finished = torch.ones(1, dtype=torch.bool)
        totals = StepTotals.of([mask], [finished])
        whole = cell_weights(mask, finished, totals, aggregation="token", whole_stops=True)
        assert whole[0, -1, 0].item() == 1.0
        assert cell_weights(mask, finished, totals, aggregation="token")[0, -1, 0].item() == pytest.approx(1 / length)


def test_channels_are_averaged_by_themselves_as_in_supervised_training() -> None:
    """sum_c w_c mean_c / sum_c w_c, for channels of unequal length."""
    mask = torch.ones(2, 4, 3, dtype=torch.bool)
    mask[0, 2:, 1], mask[1, :, 2] = False, False
    loss = torch.arange(24, dtype=torch.float64).reshape(2, 4, 3)
    totals = StepTotals.of([mask], [FINISHED])
    weights = cell_weights(
        mask, FINISHED, totals, aggregation="token", channel_weights=parse_channel_weights("1,32", 3)
    )
    means = [loss[..., channel][mask[..., channel]].mean() for channel in range(3)]
    assert (weights * loss).sum().item() == pytest.approx(float(means[0] + 16 * means[1] + 16 * means[2]) / 33)


@pytest.mark.parametrize("aggregation", ["token", "sequence", "fixed"])
@pytest.mark.parametrize("channel_weights", [None, (1.0, 2.0, 0.5)])
@pytest.mark.parametrize("whole_stops", [False, True])
def test_s50_cutting_the_step_changes_no_weight(
    aggregation: Aggregation, channel_weights: tuple[float, ...] | None, whole_stops: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 7, (9,), generator=generator)
    mask = (torch.arange(6)[None] < lengths[:, None])[..., None].expand(9, 6, 3).clone()
    mask[..., 2] &= torch.rand(9, 6, generator=generator) < 0.8
    finished = torch.rand(9, generator=generator) < 0.5
    totals = StepTotals.of([mask], [finished])
    options = {"channel_weights": channel_weights, "whole_stops": whole_stops, "fixed_length": 6}
    whole = cell_weights(mask, finished, totals, aggregation=aggregation, **options)  # type: ignore[arg-type]
    assert (whole[~mask] == 0).all()
    assert StepTotals.of([mask[:4], mask[4:]], [finished[:4], finished[4:]]) == totals
    parts = [
        cell_weights(mask[rows], finished[rows], totals, aggregation=aggregation, **options)  # type: ignore[arg-type]
        for rows in (slice(0, 4), slice(4, 9))
    ]
    assert torch.equal(torch.cat(parts), whole)
    if aggregation != "fixed" and not whole_stops:
        assert whole.sum().item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("text", "channels", "wanted"),
    [("1,32", 17, (1.0, *[2.0] * 16)), ("1,2,3", 3, (1.0, 2.0, 3.0)), ("1,32", 2, (1.0, 32.0)), ("5", 1, (5.0,))],
)
def test_channel_weights_are_read(text: str, channels: int, wanted: tuple[float, ...]) -> None:
    assert parse_channel_weights(text, channels) == wanted


@pytest.mark.parametrize(
    ("text", "channels"),
    [
        *[("1,2,3", 17), ("1,2", 1), ("a,b", 2), ("", 2)],
        *[("nan,32", 17), ("1,inf", 17), ("-1,32", 17), ("0,0", 17), ("1,nan,2", 3)],
    ],
)
def test_channel_weights_that_do_not_fit_are_refused(text: str, channels: int) -> None:
    with pytest.raises(ValueError, match=r"channel weights|could not convert"):
        parse_channel_weights(text, channels)


@pytest.mark.parametrize("aggregation", ["token", "sequence", "fixed"])
def test_a_completion_without_cells_changes_no_weight_of_its_neighbours(aggregation: Aggregation) -> None:
    # It says that it finished; its stop is masked like the rest, so it is none to average over.
    mask = torch.cat([MASK, torch.zeros_like(MASK[:1])])
    finished = torch.tensor([True, False, True])
    alone = cell_weights(MASK, FINISHED, TOTALS, aggregation=aggregation, fixed_length=4, whole_stops=True)
    totals = StepTotals.of([mask], [finished])
    assert totals == TOTALS
    beside = cell_weights(mask, finished, totals, aggregation=aggregation, fixed_length=4, whole_stops=True)
    assert torch.equal(beside[:2], alone)
    assert (beside[2] == 0).all()


@pytest.mark.parametrize("aggregation", ["token", "sequence", "fixed"])
def test_a_step_without_cells_has_no_weights_and_no_nan(aggregation: Aggregation) -> None:
    nothing = torch.zeros_like(MASK)
    totals = StepTotals.of([nothing], [FINISHED])
    weights = cell_weights(nothing, FINISHED, totals, aggregation=aggregation, fixed_length=4, whole_stops=True)
    assert (weights == 0).all()


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        cell_weights(MASK, FINISHED[:1], TOTALS, aggregation="token")
    with pytest.raises(ValueError, match="expected 1 channel weights"):
        cell_weights(MASK, FINISHED, TOTALS, aggregation="token", channel_weights=(0.0,))
    with pytest.raises(ValueError, match="needs a fixed_length"):
        cell_weights(MASK, FINISHED, TOTALS, aggregation="fixed")
