import pytest

from elocution.types import Score


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nothing_in_a_score_may_be_other_than_finite(value: float) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        Score(value)
    with pytest.raises(ValueError, match="must be finite"):
        Score(1.0, parts={"wer": value})
    with pytest.raises(ValueError, match="must be finite"):
        Score(1.0, raw={"wer": value})
