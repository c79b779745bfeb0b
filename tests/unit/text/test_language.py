import pytest

from elocution.text.language import identify_language, route_language


@pytest.mark.parametrize(
    ("text", "requested", "routed"),
    [
        ("The weather is nice today", "zh", "en"),
        ("Hello", "zh", "en"),
        ("Das Wetter ist heute sehr schön", "zh", "de"),
        ("我来自MMT公司", "zh", "zh"),
        ("iPhone", "ja", "en"),
        ("ATM", "zh", "zh"),
        ("5km", "zh", "zh"),
        ("www.baidu.com", "zh", "zh"),
        ("2024", "zh", "zh"),
        ("我来自公司", "en", "zh"),
        ("今日はいい天気です", "en", "ja"),
        ("今日はいい天気です", "zh", "ja"),
        ("오늘은 날씨가 좋다", "zh", "ko"),
        ("The word 好 means good", "en", "en"),
        ("Bonjour tout le monde", "fr", "fr"),
    ],
)
def test_s22_the_script_decides_whose_rules_a_text_needs(text: str, requested: str, routed: str) -> None:
    assert route_language(text, requested) == routed


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("The old man walked slowly along the river and looked at the boats.", "en"),
        ("Der alte Mann ging langsam am Fluss entlang und schaute auf die Boote.", "de"),
        ("Le vieil homme marchait lentement le long de la rivière.", "fr"),
        ("El viejo caminaba despacio por la orilla del río.", "es"),
        ("老人沿着河慢慢地走", "zh"),
        ("老人は川に沿ってゆっくり歩いた", "ja"),
        ("노인은 강을 따라 천천히 걸었다", "ko"),
    ],
)
def test_s25_german_and_french_are_told_from_english(text: str, language: str) -> None:
    code, probability = identify_language(text)
    assert code == language
    assert probability > 0.8
