"""Transcripts that a recogniser made up: stock phrases of its training captions, and phrases that go round in a loop."""

from collections.abc import Mapping, Sequence

from elocution.text.normalize import normalize

__all__ = ["STOCK_PHRASES", "is_hallucination", "longest_loop", "stock_phrase_in"]

STOCK_PHRASES: Mapping[str, tuple[str, ...]] = {
    "en": (
        "thank you for watching",
        "thanks for watching",
        "please subscribe",
        "like and subscribe",
        "subscribe to my channel",
        "see you in the next video",
        "see you next time",
        "subtitles by the Amara.org community",
        "transcription by castingwords",
    ),
    "zh": (
        "谢谢观看",
        "感谢观看",
        "感谢收看",
        "谢谢大家收看",
        "请订阅",
        "订阅转发",
        "点赞订阅",
        "字幕志愿者",
        "明镜与点点",
    ),
    "ja": ("ご視聴ありがとうございました", "チャンネル登録", "最後までご視聴"),
    "ko": ("시청해 주셔서 감사합니다", "구독과 좋아요", "다음 영상에서 만나요"),
    "de": ("vielen dank fürs zuschauen", "untertitel der Amara.org-Community", "untertitel im auftrag des zdf"),
    "fr": ("merci d'avoir regardé cette vidéo", "sous-titres réalisés par la communauté d'Amara.org", "abonnez-vous"),
    "es": ("gracias por ver el vídeo", "gracias por ver", "subtítulos realizados por la comunidad de Amara.org"),
}
"""What recognisers that were trained on captions write where there is nothing to hear, by language. Collected by hand."""

_LONGEST_PHRASE = 12
_LOOP = 3


def longest_loop(units: Sequence[str], *, longest: int = _LONGEST_PHRASE) -> tuple[tuple[str, ...], int]:
    """The phrase of at most `longest` units that is said most often in a row, and how often; nothing and 0 if
    there are no units.

    Of phrases that are said equally often, the first and shortest; a single unit counts as a phrase too.
    """
    best: tuple[tuple[str, ...], int] = ((), 0)
    for size in range(1, min(longest, len(units)) + 1):
        times = [1] * (len(units) + 1)
        for start in range(len(units) - 2 * size, -1, -1):
            if units[start : start + size] == units[start + size : start + 2 * size]:
                times[start] = times[start + size] + 1
        start = max(range(len(units) - size + 1), key=times.__getitem__)
        if times[start] > best[1]:
            best = tuple(units[start : start + size]), times[start]
    return best


def stock_phrase_in(transcript: str, text: str) -> str | None:
    """The first stock phrase of any language that was heard although the text does not hold it, as it is listed."""
    for language, phrases in STOCK_PHRASES.items():
        heard, wanted = (_spaced(spoken, language) for spoken in (transcript, text))
        for phrase in phrases:
            said = _spaced(phrase, language)
            if said in heard and said not in wanted:
                return phrase
    return None


def is_hallucination(transcript: str, text: str, language: str) -> bool:
    """Whether `transcript` holds a stock phrase that `text` does not, or a phrase three times in a row that `text` has fewer
    times: what a recogniser writes of silence and noise, or what a policy says that is caught in a loop.
    """
    if stock_phrase_in(transcript, text) is not None:
        return True
    phrase, times = longest_loop(normalize(transcript, language).split())
    return times >= _LOOP and _times_in_a_row(normalize(text, language).split(), phrase) < times


def _times_in_a_row(units: Sequence[str], phrase: tuple[str, ...]) -> int:
    most = 0
    for start in range(len(units)):
        times = 0
        while tuple(units[start + times * len(phrase) : start + (times + 1) * len(phrase)]) == phrase:
            times += 1
        most = max(most, times)
    return most


def _spaced(text: str, language: str) -> str:
    return f" {normalize(text, language)} "
