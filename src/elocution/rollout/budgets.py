"""How much speech the budgets of completions leave room for, said before a run begins and while it goes on."""

from collections.abc import Sequence

from elocution.codecs.base import Codec
from elocution.policies.base import Policy
from elocution.rollout.speak import token_budget
from elocution.types import Utterance

__all__ = ["FASTEST_CHARS_PER_S", "code_budgets", "describe_budgets", "doubt_budgets", "doubt_runaways", "drawn_rate"]

FASTEST_CHARS_PER_S = 25.0
"""Characters, spaces included, that nobody says in a second: fast readers of English reach about 20, of Chinese 8."""

_MANY_RUNAWAYS = 0.5


def drawn_rate(policy: Policy, codec: Codec) -> float:
    """Positions that the policy draws for a second of speech: one a frame in a grid, one a code where there is one channel."""
    return codec.frame_rate * (policy.num_codebooks if policy.num_channels == 1 else 1)


def code_budgets(utterances: Sequence[Utterance], *, max_codes_per_char: float, min_codes: int) -> list[int]:
    """How many codes the completions of each utterance may have, without the stop id."""
    return [
        token_budget(utterance.text, max_codes_per_char=max_codes_per_char, min_codes=min_codes) - 1
        for utterance in utterances
    ]


def describe_budgets(budgets: Sequence[int], rate: float) -> str:
    """The range of some budgets of codes, in codes and seconds; `rate` codes are drawn for a second."""
    shortest, longest = min(budgets), max(budgets)
    return (
        f"a completion may have {shortest} to {longest} codes, {shortest / rate:.1f} to "
        f"{longest / rate:.1f} s of speech, by the length of its text"
    )


def doubt_budgets(utterances: Sequence[Utterance], budgets: Sequence[int], rate: float) -> str | None:
    """A warning if some texts cannot be said within their `budgets`, however fast; None if all can."""
    short = [
        (utterance, budget)
        for utterance, budget in zip(utterances, budgets, strict=True)
        if budget / rate < len(utterance.text) / FASTEST_CHARS_PER_S
    ]
    if not short:
        return None
    utterance, budget = max(short, key=lambda pair: len(pair[0].text))
    return (
        f"{len(short)} of {len(utterances)} texts cannot be said within their budgets: prompt {utterance.id!r} has "
        f"{len(utterance.text)} characters, and its {budget} codes are {budget / rate:.1f} s. All their completions "
        "would be cut off; raise rollout.max_codes_per_char or rollout.min_codes"
    )


def doubt_runaways(share: float) -> str | None:
    """A warning if this share of a step's completions used up their budgets; None if it is usual."""
    if share <= _MANY_RUNAWAYS:
        return None
    return (
        f"{share:.0%} of the completions used up their budgets without a stop: either the budgets are short (raise "
        "rollout.max_codes_per_char), or the policy has unlearnt to stop"
    )
