"""What a listener preferred in the blind test of a page: the saved votes, and their share with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from scipy.stats import binomtest

from elocution.errors import DataError

__all__ = ["Preference", "Vote", "Votes", "count_votes", "read_votes"]


class Vote(BaseModel):
    """One pair: which side was played as the first, and which was preferred; None is no difference."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    utterance_id: str
    text: str
    first: str
    choice: str | None


class Votes(BaseModel):
    """The file that a page saves."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["elocution-preference-1"]
    run: str
    sides: tuple[str, str]
    saved_at: str
    votes: tuple[Vote, ...]

    @model_validator(mode="after")
    def _check_sides(self) -> Self:
        for vote in self.votes:
            if vote.choice not in (None, *self.sides):
                raise ValueError(f"the choice {vote.choice!r} for {vote.utterance_id!r} is none of {list(self.sides)}")
        return self


@dataclass(frozen=True, slots=True)
class Preference:
    """How often `sides[1]` was preferred, of the pairs with a preference; `low` and `high` bound its share by 95 %."""

    sides: tuple[str, str]
    preferred: int
    decided: int
    undecided: int
    low: float
    high: float

    @property
    def share(self) -> float:
        return self.preferred / self.decided

    @property
    def verdict(self) -> str:
        """Whether the interval leaves one half out."""
        if self.low > 0.5:
            return f"{self.sides[1]} is preferred"
        return f"{self.sides[0]} is preferred" if self.high < 0.5 else "no preference is shown"


def read_votes(path: Path) -> Votes:
    """The votes in a file that a page saved.

    Raises: DataError if it cannot be read, or is no such file.
    """
    try:
        return Votes.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"cannot read the votes in {path}: {error.strerror}") from error
    except ValidationError as error:
        found = error.errors()[0]
        place = ".".join(map(str, found["loc"])) or "the file"
        raise DataError(
            f"{path} holds no votes of a blind test: {place}: {found['msg']}; save one with the report's “save votes”"
        ) from error


def count_votes(votes: Sequence[Vote], sides: tuple[str, str]) -> Preference:
    """The preference for `sides[1]` in the votes of one listener; those without a preference are left out of the share.

    Raises: DataError if no vote has a preference.
    Source: the interval is Wilson's, J. Am. Stat. Assoc. 22 (1927), which holds for few votes and for shares of 0 and 1.
    """
    choices = [vote.choice for vote in votes if vote.choice is not None]
    if not choices:
        raise DataError(f"none of the {len(votes)} votes has a preference, so there is no share")
    preferred = choices.count(sides[1])
    interval = binomtest(preferred, len(choices)).proportion_ci(method="wilson")
    undecided = len(votes) - len(choices)
    return Preference(sides, preferred, len(choices), undecided, float(interval.low), float(interval.high))
