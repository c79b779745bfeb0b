"""`generate.speak` with the shipped checkpoint and codec."""

from pathlib import Path

import pytest
import soundfile

from elocution.assets import resolve_path
from elocution.audio import read_audio
from elocution.data.prompt_rows import VoiceSource
from elocution.errors import DataError
from elocution.generate import speak
from elocution.measures import load_transcriber

CLIP = resolve_path("builtin:tiny-clip")
TINY = {
    "model": "builtin:tiny-llasa",
    "family": "llasa",
    "codec": "tiny",
    "codec_path": "builtin:tiny-codec",
    "language": "en",
}


def test_a_sentence_goes_on_where_a_recording_ends_and_the_recording_is_not_heard_again(tmp_path: Path) -> None:
    samples, rate = soundfile.read(CLIP, dtype="float32")
    begun = tmp_path / "begun.wav"
    soundfile.write(begun, samples[: len(samples) // 2], rate)
    recogniser = load_transcriber("pocketsphinx-bigram")
    assert recogniser.transcribe(read_audio(begun)) == "the little brother"
    voice = VoiceSource("the little brother ", begun, None)
    spoken = speak("was young", tmp_path / "said.wav", temperature=0.3, seed=0, voice=voice, **TINY)
    assert recogniser.transcribe(spoken) == "was young"
    assert len(read_audio(tmp_path / "said.wav").samples) == len(spoken.samples)


def test_a_recording_whose_words_the_checkpoint_was_not_taught_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="outside the checkpoint's vocabulary: zebra"):
        speak("one", tmp_path / "x.wav", temperature=0.3, seed=0, voice=VoiceSource("zebra ", CLIP, None), **TINY)
