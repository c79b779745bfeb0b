"""One sentence, one audio file: the loop's own renderer, engine and codec."""

from functools import partial
from pathlib import Path

from elocution.assets import resolve_path
from elocution.audio import check_audio_path, write_audio
from elocution.codecs import load_codec
from elocution.data.prompt_rows import VoiceSource
from elocution.data.voices import VoiceReader
from elocution.errors import DataError, EngineError
from elocution.files import check_replaceable
from elocution.policies import load_policy
from elocution.policies.base import Policy
from elocution.policies.prompt_parts import reads_manner, reads_voice_words
from elocution.rollout.codec_fit import check_codec
from elocution.rollout.speak import Speaker
from elocution.rollout.torch_engine import TorchEngine
from elocution.text.language import check_language
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
    emotion: str = "",
) -> Audio:
    """Speaks `text` into the audio file `output`, of the kind that its suffix names, and returns the audio.

    `model` may also be a training checkpoint, which is verified first; `voice` is a recording whose voice it takes, with empty
    words where the family reads none; `speaker` a voice that the checkpoint was taught, `emotion` a feeling in words.

    Raises: DataError if the checkpoint cannot speak the text, the folder of `output` is missing or its suffix is unknown;
    ConfigError if there is no such language; StorageError if `output` is no place for a file; EngineError if it gave no speech; the loaders' own errors.
    """
    if not output.absolute().parent.is_dir():
        raise DataError(f"cannot write {output}: the folder {output.parent} does not exist")
    check_replaceable(output)
    check_audio_path(output)
    check_language(language)
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
    utterance = Utterance("sentence", text.strip(), language, taken, emotion=emotion.strip())
    if reason := talker.check(utterance) or _unread(policy, utterance):
        raise DataError(f"cannot speak {text!r:.200}: {reason}")
    groups = talker.speak([utterance], [[(seed,)]])
    rollout = groups[0].rollouts[0]
    if rollout.audio is None or rollout.outcome is not Outcome.SPEECH:
        raise EngineError(f"the model gave no usable speech ({rollout.outcome}); try another --seed")
    write_audio(output, rollout.audio)
    return rollout.audio


def _unread(policy: Policy, utterance: Utterance) -> str | None:
    """Why the prompt would not say what was asked for, or None."""
    if utterance.emotion and not reads_manner(policy, utterance):
        return f"the emotion {utterance.emotion!r:.80} would not be heard: this family's prompts have no place for one"
    if utterance.voice and not utterance.voice.text.strip() and reads_voice_words(policy, utterance):
        return "this family needs the words of the recording beside it: give --ref-text"
    return None
