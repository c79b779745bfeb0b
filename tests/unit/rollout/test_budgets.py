import pytest

from elocution.rollout.budgets import FASTEST_CHARS_PER_S, code_budgets, describe_budgets, doubt_budgets, doubt_runaways
from elocution.types import Utterance

TEXTS = [Utterance("short", "x" * 10), Utterance("long", "x" * 200)]


def test_s32_the_limit_is_stated_in_codes_and_in_seconds() -> None:
    said = describe_budgets(code_budgets(TEXTS, max_codes_per_char=4.0, min_codes=50), 25.0)
    assert "50 to 800 codes, 2.0 to 32.0 s" in said


def test_s31_texts_that_no_budget_of_theirs_can_hold_are_named_before_the_run() -> None:
    # 50 codes a second: 200 characters need 8 s, 400 codes, at the fastest; 10 characters have the least budget's 2 s.
    assert doubt_budgets(TEXTS, code_budgets(TEXTS, max_codes_per_char=2.0, min_codes=100), 50.0) is None
    said = doubt_budgets(TEXTS, code_budgets(TEXTS, max_codes_per_char=1.9, min_codes=100), 50.0)
    assert said is not None
    assert said.startswith("1 of 2 texts cannot be said")
    assert "'long' has 200 characters, and its 380 codes are 7.6 s" in said


def test_s32_the_codes_of_another_codec_are_other_seconds() -> None:
    one = [Utterance("u", "x" * int(FASTEST_CHARS_PER_S))]
    assert doubt_budgets(one, code_budgets(one, max_codes_per_char=1.0, min_codes=1), 25.0) is None
    assert doubt_budgets(one, code_budgets(one, max_codes_per_char=1.0, min_codes=1), 50.0) is not None


@pytest.mark.parametrize(("share", "warns"), [(0.0, False), (0.5, False), (0.51, True), (1.0, True)])
def test_s31_a_step_whose_completions_are_mostly_cut_off_warns(share: float, warns: bool) -> None:
    assert (doubt_runaways(share) is not None) is warns
