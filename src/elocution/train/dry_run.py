"""What a run looks up before it loads a model: parts by name, and prompts."""

from functools import partial

from elocution.assets import resolve_path
from elocution.codecs import find_codec
from elocution.config.tree import RunConfig
from elocution.data.prompts import check_split, load_prompts
from elocution.errors import ConfigError
from elocution.measures import check_recognisers
from elocution.policies import find_family
from elocution.rewards import check_reward

__all__ = ["check_parts", "check_prompts"]


def check_parts(config: RunConfig) -> list[str]:
    """Looks up every part that `config` names; classes are imported, weights are not read.

    Gives the keys of those of the user's own whose module is not there, each with its value.

    Raises: ConfigError if there is no such part, or it is not what it must be.
    """
    absent = []
    for key, name, find in (
        ("model.family", config.model.family, partial(find_family, config.model.family)),
        ("codec.type", config.codec.type, partial(find_codec, config.codec.type)),
        ("reward.type", config.reward.type, partial(check_reward, config.reward)),
        ("eval.judge", config.eval.judge, partial(check_recognisers, transcriber=config.eval.judge)),
    ):
        try:
            find()
        except ConfigError as error:
            cause = error.__cause__
            if not isinstance(cause, ModuleNotFoundError) or cause.name != name.partition(":")[0]:
                raise
            absent.append(f"{key} = {name!r}")
    return absent


def check_prompts(config: RunConfig) -> list[str]:
    """What the prompt files hold that are there, a line each; whether a model can speak them is not known here.

    Raises: DataError or ConfigError as the run would.
    """
    found, lines = {}, []
    for key, name in (("data.train", config.data.train), ("data.held_out", config.data.held_out)):
        path = resolve_path(name)
        if not path.exists():
            continue
        found[key] = load_prompts(
            path,
            languages=config.data.languages,
            on_bad_row=config.data.on_bad_row,
            check_text=lambda utterance: None,
        )
        skipped = f", {len(found[key].skipped)} bad rows left out" if found[key].skipped else ""
        lines.append(f"{key}: {len(found[key].utterances)} prompts{skipped}")
    if len(found) == 2:
        check_split(
            found["data.train"],
            found["data.held_out"],
            num_train=config.train.prompts_per_step,
            num_held_out=config.eval.sentences,
        )
    return lines
