"""What an SGLang engine is told, and what it refuses before anything is drawn. Knows no transport."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from elocution.errors import ConfigError
from elocution.rollout.sglang_protocol import SamplingParams

__all__ = ["SglangSettings", "check_server_defaults", "refuse_sampling"]

_NEUTRAL = (
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_new_tokens",
    "n",
)


@dataclass(frozen=True)
class SglangSettings:
    """How an engine uses its servers.

    `legal` says how draws keep to the policy's legal ids: `mask` has the server do it (`sglang_legal`); `redraw` draws a
    completion with an illegal id again, at most `max_redraws` times. `max_mean_gap` bounds the mean `|engine - policy|`
    log-prob of the probes after each publish, nats. `max_recoveries` is how often servers that fail within a batch are
    revived. `sampling` holds further sampling parameters; all that change the
    distribution are refused.

    Raises: ConfigError if a value cannot be used.
    """

    legal: Literal["mask", "redraw"] = "mask"
    max_redraws: int = 5
    max_mean_gap: float = 0.05
    max_recoveries: int = 3
    sampling: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        refuse_sampling(self.sampling)
        if self.max_redraws < 0 or not self.max_mean_gap > 0:
            raise ConfigError(
                f"SGLang needs max_redraws >= 0 and max_mean_gap > 0, got {self.max_redraws} and {self.max_mean_gap}"
            )


def refuse_sampling(sampling: Mapping[str, Any]) -> None:
    """Lets a parameter pass only at the value at which it does nothing.

    Truncation and penalties change the distribution that is drawn from, and the learner's log-probs know nothing of
    them. The multi-channel fork accepts `repetition_penalty` and ignores it, which no answer shows.

    Raises: ConfigError naming the parameter.
    """
    neutral = SamplingParams(max_new_tokens=1).model_dump(include=set(_NEUTRAL))
    for name, value in sampling.items():
        if name not in neutral:
            raise ConfigError(f"SGLang's sampling parameter {name!r} cannot be set; known: {', '.join(neutral)}")
        if value != neutral[name]:
            raise ConfigError(
                f"SGLang's {name} = {value!r} would draw from another distribution than the one that is trained (or be "
                f"ignored by the server); leave it at {neutral[name]!r}"
            )


def check_server_defaults(preferred: Mapping[str, Any] | None, *, url: str) -> None:
    """Refuses a server whose own sampling defaults reach into our requests.

    What a request sends wins over them; so only parameters that are never sent can do harm.

    Raises: ConfigError naming them.
    """
    left = sorted(set(preferred or ()) - {*_NEUTRAL, "temperature", "max_new_tokens", "stop_token_ids"})
    if left:
        raise ConfigError(
            f"{url} was started with preferred sampling parameters that would act here: {', '.join(left)}"
        )
