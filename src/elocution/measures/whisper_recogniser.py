"""Whisper under the names that a config uses: transcript and likelihood of clips in any of its languages, together."""

import math
from collections.abc import Sequence

from transformers.models.whisper.tokenization_whisper import LANGUAGES

from elocution.measures.base import Likelihood
from elocution.measures.optional import model_folder
from elocution.measures.whisper import Hearing, Whisper
from elocution.types import Audio

__all__ = ["WhisperRecogniser"]

_NO_SPEECH = 0.6


class WhisperRecogniser:
    """A Whisper checkpoint folder in the layout that transformers reads, such as `openai/whisper-large-v3`.

    Where it hears no speech with a probability above 0.6 the transcript is empty, as in Whisper's own `transcribe`.
    """

    languages = tuple(LANGUAGES)

    def __init__(self, path: str = "", *, device: str = "cpu") -> None:
        folder = model_folder(path, "reward.asr_path (or nll_path, eval.judge_path)", "the recogniser whisper")
        self._whisper = Whisper.from_pretrained(folder, device=device)

    def transcribe(self, audio: Audio) -> str:
        """What was said in an English clip."""
        return self.transcribe_all([audio], ["en"])[0]

    def score(self, audio: Audio, text: str) -> Likelihood:
        """Likelihood of an English text, nats per token."""
        return self.score_all([audio], [text], ["en"])[0]

    def transcribe_all(self, clips: Sequence[Audio], languages: Sequence[str]) -> list[str]:
        """What was said in each clip, clips of one language together."""
        return [_words(hearing) for hearing in self._hear(clips, None, languages)]

    def score_all(self, clips: Sequence[Audio], texts: Sequence[str], languages: Sequence[str]) -> list[Likelihood]:
        """Likelihood of each text in its clip, nats per token with the end of the text as one."""
        return [likelihood for _, likelihood in self.hear_all(clips, texts, languages)]

    def hear_all(
        self, clips: Sequence[Audio], texts: Sequence[str], languages: Sequence[str]
    ) -> list[tuple[str, Likelihood]]:
        """Transcript and likelihood of each clip, from one pass of the encoder.

        The counts of a likelihood are letters, and the end as one. A clip above 30 s, which one pass does not hear whole,
        has an infinite NLL.

        Raises: DataError if the checkpoint does not know a language, or a text is empty.
        """
        found = []
        for hearing, text in zip(self._hear(clips, texts, languages), texts, strict=True):
            words = _words(hearing)
            nll = math.inf if hearing.nll is None else hearing.nll
            counts = (len(text.strip()) + 1, len(words) + 1 if words else 0)
            found.append((words, Likelihood(nll, *counts, no_speech=hearing.no_speech)))
        return found

    def _hear(self, clips: Sequence[Audio], texts: Sequence[str] | None, languages: Sequence[str]) -> list[Hearing]:
        heard: dict[int, Hearing] = {}
        for language in dict.fromkeys(languages):
            members = [index for index, own in enumerate(languages) if own == language]
            own_texts = None if texts is None else [texts[index] for index in members]
            hearings = self._whisper.hear([clips[index] for index in members], own_texts, language=language)
            heard |= dict(zip(members, hearings, strict=True))
        return [heard[index] for index in range(len(clips))]


def _words(hearing: Hearing) -> str:
    return "" if hearing.no_speech > _NO_SPEECH else hearing.transcript
