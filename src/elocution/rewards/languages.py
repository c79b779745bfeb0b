"""Whether the recognisers of a reward hear the languages that a run speaks."""

from collections.abc import Sequence

from elocution.config.tree import RewardConfig
from elocution.errors import ConfigError
from elocution.measures import phoneme_scorer_languages, transcriber_languages
from elocution.measures.facts import FACTS
from elocution.rewards.composite import wanted_facts

__all__ = ["check_languages"]


def check_languages(config: RewardConfig, languages: Sequence[str]) -> None:
    """Looks at the rewards of this package only; one of a user's own, or on a server, decides for itself.

    Raises: ConfigError if a recogniser says which languages it hears, and one of `languages` is not among them.
    """
    match config.type:
        case "wer_nll":
            sources = {"recogniser", "phonemes"}
        case "composite":
            sources = {FACTS[name].by for name in wanted_facts(config) if name in FACTS}
        case _:
            return
    heard = {
        "reward.asr": (config.asr, transcriber_languages(config.asr) if "recogniser" in sources else None),
        "reward.nll": (config.nll, phoneme_scorer_languages(config.nll) if "phonemes" in sources else None),
    }
    for key, (name, known) in heard.items():
        if known is not None and (strange := [language for language in languages if language not in known]):
            raise ConfigError(
                f"{key} = {name!r} hears {', '.join(sorted(known))}, but data.languages has {', '.join(strange)}; "
                "set another recogniser, or leave these languages out"
            )
