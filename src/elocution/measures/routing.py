"""Which recogniser hears which clip, and clips heard together where a recogniser can."""

from collections.abc import Mapping, Sequence

from elocution.config.rewards import RecogniserConfig
from elocution.measures import load_transcriber
from elocution.measures.base import BatchScorer, BatchTranscriber, Likelihood, PhonemeScorer, Transcriber
from elocution.text.normalize import normalize
from elocution.types import Audio

__all__ = ["Routes", "score_together", "transcribe_together"]


def transcribe_together(transcriber: Transcriber, clips: Sequence[Audio], languages: Sequence[str]) -> list[str]:
    """What `transcriber` hears in each clip; one that takes no batches hears them one by one, and is not told the language."""
    if isinstance(transcriber, BatchTranscriber):
        return transcriber.transcribe_all(clips, languages)
    return [transcriber.transcribe(clip) for clip in clips]


def score_together(
    scorer: PhonemeScorer, clips: Sequence[Audio], texts: Sequence[str], languages: Sequence[str]
) -> list[Likelihood]:
    """The likelihood of each text in its clip; a scorer that takes no batches gets normalised texts one by one."""
    if isinstance(scorer, BatchScorer):
        return scorer.score_all(clips, texts, languages)
    return [
        scorer.score(clip, normalize(text, language))
        for clip, text, language in zip(clips, texts, languages, strict=True)
    ]


class Routes:
    """A transcriber that hands each clip to the recogniser of its language, loaded when the first such clip comes."""

    def __init__(self, default: Transcriber, by_language: Mapping[str, RecogniserConfig], *, device: str) -> None:
        self._default, self._configs, self._device = default, by_language, device
        self._loaded: dict[RecogniserConfig, Transcriber] = {}

    def transcribe(self, audio: Audio) -> str:
        """What the default recogniser hears."""
        return self._default.transcribe(audio)

    def transcribe_all(self, clips: Sequence[Audio], languages: Sequence[str]) -> list[str]:
        """What the recogniser of each clip's language hears, clips of one language together."""
        heard: dict[int, str] = {}
        for language in dict.fromkeys(languages):
            members = [index for index, own in enumerate(languages) if own == language]
            found = transcribe_together(
                self._of(language), [clips[index] for index in members], [language] * len(members)
            )
            heard |= dict(zip(members, found, strict=True))
        return [heard[index] for index in range(len(clips))]

    def _of(self, language: str) -> Transcriber:
        config = self._configs.get(language)
        if config is None:
            return self._default
        if config not in self._loaded:
            self._loaded[config] = load_transcriber(config.name, path=config.path, device=self._device)
        return self._loaded[config]
