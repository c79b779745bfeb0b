import pytest

from elocution.errors import DataError
from elocution.text.seed_tts import seed_tts_units


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("Don't stop, “it's” 50%!", ("don't", "stop", "it's", "50")),
        ("well-known", ("wellknown",)),
        ("a  b", ("a", "b")),
    ],
)
def test_s18_english_keeps_apostrophes_and_numbers_and_joins_what_punctuation_parts(
    text: str, units: tuple[str, ...]
) -> None:
    assert seed_tts_units(text, "en", is_transcript=False) == units


def test_chinese_is_split_into_characters_latin_letters_too_with_their_case() -> None:
    assert seed_tts_units("这是 ATM。", "zh", is_transcript=False) == ("这", "是", "A", "T", "M")


def test_only_transcripts_are_brought_to_simplified_script() -> None:
    assert seed_tts_units("網絡", "zh", is_transcript=True) == ("网", "络")
    assert seed_tts_units("網絡", "zh", is_transcript=False) == ("網", "絡")


def test_the_scorers_own_converter_can_be_passed() -> None:
    assert seed_tts_units("abc", "zh", is_transcript=True, to_simplified=str.upper) == ("A", "B", "C")


def test_other_languages_are_refused() -> None:
    with pytest.raises(DataError, match="en and zh"):
        seed_tts_units("Haus", "de", is_transcript=False)
