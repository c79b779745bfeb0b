"""Which feeling a clip expresses, by emotion2vec as funasr runs it."""

from typing import Any

from elocution.measures.loudness import is_silent
from elocution.measures.optional import import_optional, model_folder
from elocution.measures.resample import samples_at
from elocution.types import Audio

__all__ = ["Emotion2vec"]

_SAMPLE_RATE = 16_000


class Emotion2vec:
    """A folder such as `iic/emotion2vec_plus_large` with its `config.yaml`, `model.pt` and `tokens.txt`.

    Source: Ma et al., arXiv:2312.15185.
    """

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder = model_folder(path, "reward.emotion_path", "emotion2vec")
        package = import_optional("funasr", package="funasr", install="pip install funasr")
        self._model: Any = package.AutoModel(model=str(folder), device=device, disable_update=True, disable_pbar=True)

    def probability(self, audio: Audio, emotion: str) -> float:
        """Probability, 0 to 1, that the clip expresses `emotion`, one of the model's labels in English.

        Raises: ValueError if the prompt names no emotion, or one that the model does not know, or the clip is silent.
        """
        if not emotion:
            raise ValueError("the prompt names no emotion")
        if is_silent(audio):
            raise ValueError("there is no emotion in a silent clip")
        (found,) = self._model.generate(
            samples_at(audio, _SAMPLE_RATE), granularity="utterance", extract_embedding=False
        )
        # Labels are written as 开心/happy.
        probabilities = {
            label.rpartition("/")[2].lower(): float(score)
            for label, score in zip(found["labels"], found["scores"], strict=True)
        }
        if emotion.lower() not in probabilities:
            raise ValueError(f"emotion2vec does not know {emotion!r:.40}; it knows {', '.join(probabilities)}")
        return probabilities[emotion.lower()]
