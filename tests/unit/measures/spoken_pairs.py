"""Pairs of texts, by language: whether they are the same when spoken, and why."""

from typing import NamedTuple

__all__ = ["PAIRS", "Pair"]


class Pair(NamedTuple):
    language: str
    reference: str
    hypothesis: str
    is_equal: bool
    reason: str


def _pairs(language: str, rows: str) -> list[Pair]:
    """Rows `reference ==> hypothesis | reason` where they are the same, `=/=>` where they are not."""
    pairs = []
    for row in filter(None, map(str.strip, rows.splitlines())):
        texts, reason = row.rsplit(" | ", 1)
        is_equal = " ==> " in texts
        reference, hypothesis = texts.split(" ==> " if is_equal else " =/=> ")
        pairs.append(Pair(language, reference.strip(), hypothesis.strip(), is_equal, reason.strip()))
    return pairs


PAIRS = (
    *_pairs(
        "en",
        """
        fifty turns ==> 50 turns | s18: cardinal
        Type One ==> type 1 | s18: case and cardinal
        $5.20 ==> five dollars and twenty cents | s18: money in full
        $5.20 ==> five dollars twenty | money, the coins unnamed
        $5.20 ==> five twenty | money, nothing named
        $5.20 ==> 5 dollars and 20 cents | money, half in digits
        $5.20 =/=> five dollars thirty | another amount
        $1 ==> one dollar | singular
        $0.99 ==> ninety-nine cents | coins alone
        $3.5 million ==> three point five million dollars | money with a scale
        $5bn ==> five billion dollars | short scale
        £20 ==> twenty pounds | sterling
        €100 ==> a hundred euros | a for one
        3:45 pm ==> three forty-five p.m. | s18: time
        3:45 pm ==> quarter to four PM | time by quarters
        3:45 pm =/=> three forty-five a.m. | the other half of the day
        3:05 ==> three oh five | zero minutes are said oh
        10:30 ==> half past ten | half hours
        7:00 ==> seven o'clock | full hour
        5 pm ==> five pm | hour alone
        2nd ==> second | s18: ordinal
        the 21st ==> the twenty-first | compound ordinal
        2nd =/=> two | ordinal and cardinal differ
        1990s ==> nineteen nineties | s18: decade
        the 90s ==> the nineties | short decade
        1990s =/=> nineteen eighties | another decade
        in 1990 ==> in nineteen ninety | year
        in 1990 ==> in one thousand nine hundred ninety | year as a number
        in 2005 ==> in two thousand five | year without and
        in 2024 ==> in twenty twenty-four | year in pairs
        in 1906 ==> in nineteen oh six | oh in a year
        105 ==> one hundred and five | and
        105 ==> one hundred five | no and
        1,500 ==> fifteen hundred | hundreds
        1,234,567 ==> one million two hundred thirty-four thousand five hundred sixty-seven | grouped digits
        3.14 ==> three point one four | decimal
        0.5 ==> point five | decimal without its zero
        0.5 ==> zero point five | decimal with its zero
        007 ==> zero zero seven | leading zeros are read one by one
        007 ==> oh oh seven | zero is said oh
        50% ==> fifty percent | percent
        50% ==> 50 per cent | percent, apart
        5+8=13 ==> five plus eight equals thirteen | s21: sum
        5+8=13 ==> five plus eight is thirteen | s21: sum, said is
        5+8=13 =/=> five plus eight equals thirty | s21: another result
        a²+b² ==> a squared plus b squared | s21: powers
        x³ ==> x cubed | third power
        2^10 ==> two to the power of ten | other power
        see www.example.com ==> see w w w dot example dot com | s21: address, letter by letter
        https://example.com/a ==> example dot com slash a | s21: scheme unsaid
        bob.smith@mail.org ==> bob dot smith at mail dot org | s21: mail
        bob@mail.org =/=> bob mail org | at and dot are words
        5 km ==> five kilometers | unit
        5 km ==> five kilometres | unit, British
        1 kg ==> one kilogram | unit, singular
        60 mph ==> sixty miles per hour | speed
        20°C ==> twenty degrees celsius | temperature
        20℃ ==> twenty degrees | temperature, scale unsaid
        -5 degrees ==> minus five degrees | sign
        5-10 ==> five to ten | range
        1/2 ==> one half | half
        3/4 ==> three quarters | quarters
        2½ ==> two and a half | mixed number
        2/3 ==> two thirds | thirds
        December 25, 2024 ==> december twenty-fifth twenty twenty-four | date
        25 December ==> the twenty-fifth of December | date, day first
        2024-12-25 ==> December 25th 2024 | ISO date
        12/25/2024 ==> december twenty fifth twenty twenty four | slashed date
        555-1234 ==> five five five one two three four | telephone
        Dr. Smith ==> doctor Smith | title
        Mr Jones ==> mister Jones | title
        cats & dogs ==> cats and dogs | ampersand
        No. 5 ==> number five | number sign in letters
        iphone ==> i phone | s19: one word or two
        iPhone15 ==> i phone fifteen | letters and digits part
        MP3 ==> m p three | letters one by one
        U.S.A. ==> USA | dotted letters
        colour ==> color | British spelling
        it's ==> its | possessive apostrophe sounds the same
        we're =/=> were | these differ in sound
        don't ==> dont | apostrophe lost
        well-known ==> well known | hyphen
        Hello [laugh] there ==> hello there | s23: bracketed tag
        Hello <break time="1s"/> there ==> hello there | s23: SSML
        (sighs) Fine. ==> fine | s23: stage direction
        <|HAPPY|> Hello ==> hello | s23: emotion tag
        <strong>very</strong> good ==> very good | s23: what a tag encloses stays
        the house (a big one) stood ==> the house a big one stood | an aside is spoken
        the house (a big one) stood =/=> the house stood | an aside left out is an error
        Speak softly.<|endofprompt|>Good day ==> good day | s23: the instruction is not spoken
        ＡＢＣ　１２ ==> abc twelve | full width
        he said “go” ==> He said: go! | punctuation and quotes
        fifty =/=> fifteen | other numbers
        15 =/=> fifty | other numbers
        the cat =/=> the cats | other words
        ten =/=> 10th | cardinal and ordinal
        two =/=> to | homophones are not read as each other
        """,
    ),
    *_pairs(
        "zh",
        """
        我来自MMT公司 ==> 我来自m m t公司 | s19: letters one by one
        这是ATM ==> 这是atm | s19: case
        这是ATM =/=> 这是 | s19: Latin is not dropped
        打开iPhone15 ==> 打开i phone十五 | s19: name and number
        QQ群 ==> q q群 | s19: letters
        5G网络 ==> 五G网络 | s19: number before a letter
        5G网络 ==> five g网络 | s19: number read in English
        5G网络 =/=> 四G网络 | another number
        2024年 ==> 二零二四年 | year digit by digit
        2024年12月25日 ==> 二零二四年十二月二十五号 | date
        2024-12-25 ==> 二零二四年十二月二十五日 | ISO date
        50个 ==> 五十个 | cardinal
        2个 ==> 两个 | two before a measure word
        200元 ==> 两百元 | two hundred
        200元 ==> 二百元 | two hundred, the other way
        105 ==> 一百零五 | zero inside
        1005 ==> 一千零五 | one zero for two
        10086 ==> 一万零八十六 | as a number
        10086 ==> 幺零零八六 | as a service number
        10001000 ==> 一千万一千 | groups of four
        123456789 ==> 一亿二千三百四十五万六千七百八十九 | long number
        15万 ==> 十五万 | scale in a character
        3.14 ==> 三点一四 | decimal
        50% ==> 百分之五十 | percent
        1/2 ==> 二分之一 | fraction
        5+8=13 ==> 五加八等于十三 | s21: sum
        a²+b² ==> a平方加b平方 | s21: powers
        ¥5.20 ==> 五块二 | money, colloquial
        ¥5.20 ==> 五元二角 | money
        $100 ==> 一百美元 | dollars
        下午3:45 ==> 下午三点四十五分 | time
        3:30 ==> 三点半 | half hour
        3:45 ==> 三点三刻 | quarter
        3:05 ==> 三点零五分 | zero minutes
        5km ==> 五公里 | unit
        5km ==> 五千米 | unit, the other word
        -5℃ ==> 零下五摄氏度 | temperature
        3-5天 ==> 三到五天 | range
        13812345678 ==> 幺三八幺二三四五六七八 | telephone
        www.baidu.com ==> www点baidu点com | address
        第1名 ==> 第一名 | ordinal
        計算機網絡 ==> 计算机网络 | traditional
        你好，世界！ ==> 你好世界 | punctuation
        １２３ ==> 一百二十三 | full width
        二〇二四年 ==> 2024年 | circle for zero
        （笑）你好 ==> 你好 | s23: stage direction
        [laughter]你好 ==> 你好 | s23: tag
        十五 =/=> 五十 | other numbers
        你好 =/=> 您好 | other characters
        他来了 =/=> 她来了 | homophones differ in characters, and not in pinyin
        Hello world ==> hello, world | s22: English in a Chinese row
        Type 2 =/=> type three | s22: English in a Chinese row, another number
        """,
    ),
    *_pairs(
        "ja",
        """
        50人 ==> 五十人 | cardinal
        3.5 ==> 三点五 | decimal
        100円 ==> 百円 | hundred without one
        ¥500 ==> 五百円 | money
        3:30 ==> 三時半 | half hour
        3:15 ==> 三時十五分 | time
        5km ==> 五キロメートル | unit
        50% ==> 五十パーセント | percent
        ｶﾀｶﾅ ==> カタカナ | half width
        コーヒー ==> こーひー | kana of both kinds
        こんにちは、世界。 ==> こんにちは世界 | punctuation
        （笑）はい ==> はい | s23: stage direction
        2024年 ==> 二千二十四年 | year
        1/2 ==> 二分の一 | fraction
        五十 =/=> 十五 | other numbers
        私 =/=> わたし | kanji and kana of a word are not known to be one
        """,
    ),
    *_pairs(
        "ko",
        """
        50명 ==> 오십 명 | Sino-Korean number, spacing
        3명 ==> 세 명 | native number
        20살 ==> 스무 살 | native twenty
        010-1234 ==> 공일공 다시 일이삼사 | telephone
        3:30 ==> 세 시 삼십 분 | time
        3:30 ==> 세시 반 | half hour
        5km ==> 오 킬로미터 | unit
        50% ==> 오십 퍼센트 | percent
        $5 ==> 오 달러 | money
        안녕 하세요 ==> 안녕하세요. | spacing
        3.5 ==> 삼 점 오 | decimal
        오십 =/=> 십오 | other numbers
        """,
    ),
    *_pairs(
        "de",
        """
        25 Häuser ==> fünfundzwanzig Häuser | cardinal
        25 Häuser ==> fünf und zwanzig Häuser | written apart
        1990 ==> neunzehnhundertneunzig | year
        2024 ==> zweitausendvierundzwanzig | year
        1.500 ==> eintausendfünfhundert | grouped
        3,14 ==> drei Komma eins vier | decimal
        5,20 € ==> fünf Euro zwanzig | money
        5,20 € ==> fünf Euro und zwanzig Cent | money in full
        50 % ==> fünfzig Prozent | percent
        15:30 Uhr ==> fünfzehn Uhr dreißig | time
        der 3. Oktober ==> der dritte Oktober | ordinal
        am 3. Oktober ==> am dritten Oktober | declined
        25.12.2024 ==> fünfundzwanzigster zwölfter zweitausendvierundzwanzig | date
        100 km/h ==> hundert Kilometer pro Stunde | unit
        Straße ==> Strasse | sharp s
        z.B. heute ==> zum Beispiel heute | abbreviation
        5+8=13 ==> fünf plus acht gleich dreizehn | sum
        zwei ==> 2 | words in the reference
        2 ==> zwo | two on the telephone
        3-5 Tage ==> drei bis fünf Tage | range
        (seufzt) Ja. ==> ja | s23: stage direction
        dreizehn =/=> dreißig | other numbers
        schön =/=> schon | umlauts matter
        """,
    ),
    *_pairs(
        "fr",
        """
        21 jours ==> vingt et un jours | cardinal
        80 ==> quatre-vingts | eighty
        81 ==> quatre-vingt-un | no plural inside
        71 ==> soixante et onze | seventy-one
        200 ==> deux cents | plural
        3,14 ==> trois virgule quatorze | decimal in pairs
        5,20 € ==> cinq euros vingt | money
        50 % ==> cinquante pour cent | percent
        15h30 ==> quinze heures trente | time
        1er janvier ==> premier janvier | first
        2e étage ==> deuxième étage | ordinal
        25/12/2024 ==> vingt-cinq décembre deux mille vingt-quatre | date
        1 000 ==> mille | grouped by a space
        1990 ==> mille neuf cent quatre-vingt-dix | year
        5 km ==> cinq kilomètres | unit
        5+8=13 ==> cinq plus huit égale treize | sum
        l’heure ==> l'heure | curly apostrophe
        3-5 jours ==> trois à cinq jours | range
        (rires) Oui ==> oui | s23: stage direction
        treize =/=> trente | other numbers
        """,
    ),
    *_pairs(
        "es",
        """
        21 días ==> veintiún días | short form
        21 páginas ==> veintiuna páginas | feminine
        200 páginas ==> doscientas páginas | feminine hundreds
        1990 ==> mil novecientos noventa | year
        3,14 ==> tres coma catorce | decimal in pairs
        3.5 ==> tres punto cinco | decimal point
        5,20 € ==> cinco euros con veinte | money
        50 % ==> cincuenta por ciento | percent
        15:30 ==> quince treinta | time
        15:30 ==> quince y treinta | time with y
        1º piso ==> primer piso | short ordinal
        2ª vez ==> segunda vez | feminine ordinal
        25/12/2024 ==> veinticinco de diciembre de dos mil veinticuatro | date
        1.500 ==> mil quinientos | grouped
        5 km ==> cinco kilómetros | unit
        5+8=13 ==> cinco más ocho igual a trece | sum
        Sra. García ==> señora García | abbreviation
        ¿Qué? ==> qué | punctuation
        3-5 días ==> tres a cinco días | range
        trece =/=> treinta | other numbers
        año =/=> ano | tilde matters
        """,
    ),
)
