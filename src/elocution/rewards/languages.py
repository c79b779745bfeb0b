"""Whether the recognisers of a run will hear it: their folders are there, and they know the languages that it speaks."""

from collections.abc import Collection, Sequence

from elocution.config.tree import EvalConfig, RewardConfig
from elocution.errors import ConfigError
from elocution.measures import PACKAGED, PHONEME_SCORERS, TRANSCRIBERS, phoneme_scorer_languages, transcriber_languages
from elocution.measures.facts import FACTS
from elocution.measures.optional import model_folder
from elocution.rewards.composite import wanted_facts

__all__ = ["check_folders", "check_languages"]


def check_languages(config: RewardConfig, languages: Sequence[str]) -> None:
    """Looks at the rewards of this package only; one of a user's own, or on a server, decides for itself.

    Raises: ConfigError if a recogniser says which languages it hears, and one of `languages` is not among them.
    """
    sources = _sources(config)
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


def check_folders(config: RewardConfig, evaluation: EvalConfig) -> None:
    """Looks at recognisers of the table alone; one of a user's own decides for itself.

    Raises: ConfigError if one that needs a folder has none, or a folder that is not there.
    """
    sources = _sources(config)
    named = [("eval.judge", evaluation.judge, "eval.judge_path", evaluation.judge_path)]
    if "recogniser" in sources:
        named.append(("reward.asr", config.asr, "reward.asr_path", config.asr_path))
        for language, one in config.asr_by_language.items():
            key = f"reward.asr_by_language.{language}"
            named.append((f"{key}.name", one.name, f"{key}.path", one.path))
    if "phonemes" in sources:
        named.append(("reward.nll", config.nll, "reward.nll_path", config.nll_path))
    for key, name, path_key, path in named:
        if name in (TRANSCRIBERS.keys() | PHONEME_SCORERS.keys()) - PACKAGED:
            model_folder(path, path_key, f"{key} = {name!r}")


def _sources(config: RewardConfig) -> set[str]:
    """What the facts behind a reward of this package come from; nothing is known of others."""
    match config.type:
        case "wer_nll":
            return {"recogniser", "phonemes"}
        case "composite":
            return {FACTS[name].by for name in wanted_facts(config) if name in FACTS}
        case _:
            return set()


def _check(key: str, name: str, known: Collection[str] | None, asked: Sequence[str]) -> None:
    if known is not None and (strange := [language for language in asked if language not in known]):
        raise ConfigError(
            f"{key} = {name!r} hears {', '.join(sorted(known))}, but data.languages has {', '.join(strange)}; "
            "set another recogniser, or leave these languages out"
        )
