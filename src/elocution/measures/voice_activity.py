"""Where in a clip somebody speaks, by silero-vad; its model is in the package."""

import warnings
from dataclasses import dataclass

import torch

from elocution.measures.optional import import_optional
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["SileroDetector", "VoiceActivity", "voice_shares"]

_SAMPLE_RATE = 16_000
_WINDOW = 512


@dataclass(frozen=True, slots=True)
class VoiceActivity:
    """Shares of the clip: `speech_share` is speech, `speech_pause_share` lies between two stretches of it."""

    speech_share: float
    speech_pause_share: float


def voice_shares(stretches: list[tuple[int, int]], length: int) -> VoiceActivity:
    """The shares that stretches of speech (start, end), in order and apart, have in a clip of `length` samples."""
    if not stretches:
        return VoiceActivity(0.0, 0.0)
    spoken = sum(end - start for start, end in stretches)
    return VoiceActivity(spoken / length, (stretches[-1][1] - stretches[0][0] - spoken) / length)


class SileroDetector:
    """Finds the stretches of speech in a clip; remembers nothing of the clips before."""

    def __init__(self) -> None:
        threads = torch.get_num_threads()
        self._package = import_optional("silero_vad", package="silero-vad", install="pip install 'elocution[measures]'")
        torch.set_num_threads(threads)  # the package sets it to 1 while it is imported
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, in which the model comes
            self._model = self._package.load_silero_vad()

    def detect(self, audio: Audio) -> VoiceActivity:
        """The shares of speech and of pauses in it; none in a clip that is shorter than one window, 32 ms."""
        samples = samples_at(audio, _SAMPLE_RATE)
        if len(samples) < _WINDOW:
            return VoiceActivity(0.0, 0.0)
        found = self._package.get_speech_timestamps(
            torch.tensor(samples), self._model, sampling_rate=_SAMPLE_RATE, min_speech_duration_ms=100
        )
        return voice_shares([(int(one["start"]), int(one["end"])) for one in found], len(samples))
