"""One sentence, one WAV file: the loop's own renderer, engine and codec."""

from functools import partial
from pathlib import Path

from elocution.assets import resolve_path
from elocution.audio import write_wav
from elocution.codecs import load_codec
from elocution.data.prompt_rows import VoiceSource
from elocution.data.voices import VoiceReader
from elocution.errors import DataError, EngineError
from elocution.files import check_replaceable
from elocution.policies import load_policy
from elocution.rollout.codec_fit import check_codec
from elocution.rollout.speak import Speaker
from elocution.rollout.torch_engine import TorchEngine
from elocution.train.checkpoint import verify_checkpoint
from elocution.types import Audio, Outcome, Utterance

__all__ = ["speak"]


def speak(
    text: str,
    output: Path,
    *,
    model: str,
    family: str,
    codec: str,
    codec_path: str,
    language: str,
    temperature: float,
    seed: int,
    max_codes_per_char: float = 4.0,
    min_codes: int = 40,
    voice: VoiceSource | None = None,
    speaker: str = "",
) -> Audio:
    """Speaks `text` into the WAV file `output` and returns the audio.

    `model` may also be a training checkpoint, which is verified first; `voice` is a recording whose voice it takes,
    `speaker` a voice that the checkpoint was taught.

    Raises: DataError if the checkpoint cannot speak the text or the folder of `output` is missing; StorageError if
    `output` is no place for a file; EngineError if it gave no speech; the loaders' own errors.
    """
    if not output.absolute().parent.is_dir():
        raise DataError(f"cannot write {output}: the folder {output.parent} does not exist")
    check_replaceable(output)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"the text {text!r} is not valid UTF-8") from error
    if not any(character.isalnum() for character in text):
        raise DataError(f"the text {text!r} has nothing to speak")
    path = resolve_path(model)
    if (path / "state.json").is_file():
        path = verify_checkpoint(path).model_path
    policy = load_policy(family, path, speaker=speaker)
    engine = TorchEngine(policy, temperature=temperature, batch_size=1)
    engine.publish(0)
    load = partial(load_codec, codec, resolve_path(codec_path))
    sounds = load()
    check_codec(sounds, policy, name=codec_path)
    talker = Speaker(
        policy,
        engine,
        sounds,
        max_codes_per_char=max_codes_per_char,
        min_codes=min_codes,
    )
    taken = VoiceReader(load).read(voice) if voice else None
    utterance = Utterance("sentence", text.strip(), language, taken)
    if reason := talker.check(utterance):
        raise DataError(f"cannot speak {text!r:.200}: {reason}")
    groups = talker.speak([utterance], [[(seed,)]])
    rollout = groups[0].rollouts[0]
    if rollout.audio is None or rollout.outcome is not Outcome.SPEECH:
        raise EngineError(f"the model gave no usable speech ({rollout.outcome}); try another --seed")
    write_wav(output, rollout.audio)
    return rollout.audio
