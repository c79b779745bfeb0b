"""Whether the recognisers of a reward hear the languages that a run speaks."""

from collections.abc import Collection, Sequence

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
    if "recogniser" in sources:
        routes = config.asr_by_language
        _check(
            "reward.asr", config.asr, transcriber_languages(config.asr), [one for one in languages if one not in routes]
        )
        for language in sorted(routes.keys() & set(languages)):
            name = routes[language].name
            _check(f"reward.asr_by_language.{language}.name", name, transcriber_languages(name), [language])
    if "phonemes" in sources:
        _check("reward.nll", config.nll, phoneme_scorer_languages(config.nll), languages)


def _check(key: str, name: str, known: Collection[str] | None, asked: Sequence[str]) -> None:
    if known is not None and (strange := [language for language in asked if language not in known]):
        raise ConfigError(
            f"{key} = {name!r} hears {', '.join(sorted(known))}, but data.languages has {', '.join(strange)}; "
            "set another recogniser, or leave these languages out"
        )
