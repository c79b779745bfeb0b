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
        $1,250.75 ==> twelve hundred fifty dollars and seventy-five cents | money by hundreds
        $1.5 billion ==> one and a half billion dollars | half of a scale
        10k users ==> ten thousand users | scale in a letter
        50¢ ==> fifty cents | coins alone
        USD 50 ==> fifty US dollars | money by its code
        ¥500 ==> five hundred yuan | a sign of two currencies
        12:00 pm ==> twelve noon | noon
        10 a.m.–5 p.m. ==> ten a m to five p m | range of times
        10%-20% ==> ten percent to twenty percent | range with a unit at both ends
        July 4th ==> the fourth of July | date the other way round
        4 July 1776 ==> July fourth seventeen seventy-six | date the other way round
        7/4/76 ==> July fourth seventy-six | date, short year
        the 112th ==> the hundred and twelfth | ordinal without one
        ½ cup ==> half a cup | half of something
        1/100 ==> one hundredth | hundredth
        5'11" ==> five foot eleven | feet and inches
        2 L ==> two liters | unit of one capital letter
        60 fps ==> sixty frames per second | unit
        2x faster ==> two times faster | factor
        +1 555-123-4567 ==> plus one five five five one two three four five six seven | telephone with its country
        007 ==> double oh seven | two zeros
        e.g. this ==> for example this | abbreviation
        naïve café ==> naive cafe | borrowed accents
        F-16 =/=> f to sixteen | a dash that is no range
        5 in the morning ==> five in the morning | a word that could be a unit
        10%-20% =/=> ten percent minus thirty percent | another number
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
        12:30:45 ==> 十二点三十分四十五秒 | time with seconds
        8点30 ==> 八点半 | time, half in digits
        9:00-17:00 ==> 九点到十七点 | range of times
        3天-5天 ==> 三天到五天 | range with a measure word at both ends
        2020-2023年 ==> 二零二零到二零二三年 | range of years
        7/4 ==> 七月四日 | date without its year
        HK$20 ==> 二十港币 | money of another country
        RMB 50 ==> 五十块 | money by its code
        2.5万 ==> 两万五 | decimal of a scale
        1½ ==> 一又二分之一 | mixed number
        100% ==> 百分之百 | whole
        100km/h ==> 每小时一百公里 | unit around its amount
        2^10 ==> 二的十次方 | power of two digits
        www.google.com ==> 三w点google点com | address, three w
        iPhone 15 Pro ==> iphone十五pro | s19: a Latin text that was heard in Chinese
        COVID-19 ==> covid十九 | s19: a Latin text that was heard in Chinese
        看著我 ==> 看着我 | one character of two
        著名 =/=> 着名 | and not where it is another
        妳好 ==> 你好 | variant character
        2.5万 =/=> 两万六 | another decimal
        iPhone 15 Pro =/=> iphone十六pro | another number
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
        1500円 ==> 一千五百円 | thousand with one
        3時30分 ==> 三時半 | half hour, in characters
        12:30:45 ==> 十二時三十分四十五秒 | time with seconds
        2024/12/25 ==> 二千二十四年十二月二十五日 | date
        2024-12-25 ==> 二〇二四年十二月二十五日 | ISO date, year digit by digit
        12/25 ==> 十二月二十五日 | date without its year
        25°C ==> 摂氏二十五度 | unit around its amount
        100km/h ==> 時速百キロ | unit around its amount
        10m² ==> 十平方メートル | square
        10%-20% ==> 十パーセントから二十パーセント | range with a unit at both ends
        03-1234-5678 ==> ゼロ三一二三四五六七八 | telephone, zero in kana
        www.example.com ==> ダブリューダブリューダブリュードットexampleドットcom | address
        iPhone15 ==> iphone十五 | s19: a Latin text that was heard in Japanese
        2024/12/25 =/=> 二千二十四年十二月二十四日 | another day
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
        1234명 ==> 일천이백삼십사 명 | thousand with one
        1번째 ==> 첫 번째 | ordinal
        $20.50 ==> 이십 달러 오십 센트 | money in full
        3시 30분 ==> 세 시 반 | half hour, in characters
        12:30:45 ==> 열두 시 삼십 분 사십오 초 | time with seconds
        2024-12-25 ==> 이천이십사년 십이월 이십오일 | ISO date
        2024.12.25 ==> 이천이십사년 십이월 이십오일 | date
        6월 10일 ==> 유월 십일 | month with a name of its own
        25°C ==> 섭씨 이십오 도 | unit around its amount
        100km/h ==> 시속 백 킬로미터 | unit around its amount
        10m² ==> 십 제곱미터 | square
        9:00-17:00 ==> 아홉 시에서 십칠 시 | range of times
        iPhone15 ==> iphone 십오 | s19: a Latin text that was heard in Korean
        2024-12-25 =/=> 이천이십사년 십일월 이십오일 | another month
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
        1 Mio. Euro ==> eine Million Euro | scale
        50 CHF ==> fünfzig Franken | money by its code
        12:30 ==> halb eins | half hour
        15:15 Uhr ==> Viertel nach drei | quarter
        15.30 Uhr ==> fünfzehn Uhr dreißig | time with a point
        12:30:45 ==> zwölf Uhr dreißig Minuten und fünfundvierzig Sekunden | time with seconds
        9:00-17:00 Uhr ==> neun Uhr bis siebzehn Uhr | range of times
        2024-12-25 ==> fünfundzwanzigster Dezember zweitausendvierundzwanzig | ISO date
        am 3.10. ==> am dritten Oktober | date without its year
        zum 101. Mal ==> zum hundertersten Mal | ordinal without one
        1001 ==> tausendundeins | with und
        10 m² ==> zehn Quadratmeter | square
        2 Std. ==> zwei Stunden | unit with a point
        3/4 ==> drei Viertel | fraction
        2½ ==> zweieinhalb | mixed number
        3:2 ==> drei zu zwei | score
        Prof. Dr. Meier ==> Professor Doktor Meier | titles
        12:30 =/=> halb zwei | another half hour
        3/4 =/=> drei Achtel | another fraction
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
        71 ==> septante et un | as in Belgium and Switzerland
        3 M€ ==> trois millions d'euros | scale
        15h30 ==> trois heures et demie | half hour
        8h45 ==> neuf heures moins le quart | quarter to
        12h00 ==> midi | noon
        0h15 ==> minuit et quart | midnight
        9h-17h ==> neuf heures à dix-sept heures | range of times
        12:30:45 ==> douze heures trente minutes et quarante-cinq secondes | time with seconds
        2024-12-25 ==> vingt-cinq décembre deux mille vingt-quatre | ISO date
        10 m² ==> dix mètres carrés | square
        2 min ==> deux minutes | unit
        3/4 ==> trois quarts | fraction
        2/3 ==> deux tiers | fraction
        2½ ==> deux et demi | mixed number
        06.12.34.56.78 ==> zéro six douze trente-quatre cinquante-six soixante-dix-huit | telephone
        cœur ==> coeur | ligature
        8h45 =/=> huit heures moins le quart | another hour
        2/3 =/=> deux quarts | another fraction
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
        100 ==> ciento | hundred before more
        1990 ==> diecinueve noventa | year in pairs
        3.er piso ==> tercer piso | ordinal with a point
        n.º 5 ==> número cinco | number sign
        US$ 20 ==> veinte dólares | money by its code
        19,99 € ==> diecinueve con noventa y nueve | money, nothing named
        15:30 ==> tres y media | half hour
        8:45 ==> nueve menos cuarto | quarter to
        8:00 ==> ocho en punto | full hour
        12:30:45 ==> doce horas treinta minutos y cuarenta y cinco segundos | time with seconds
        2024-12-25 ==> veinticinco de diciembre de dos mil veinticuatro | ISO date
        25/12/24 ==> veinticinco de diciembre de veinticuatro | date, short year
        10 m² ==> diez metros cuadrados | square
        30 min ==> treinta minutos | unit
        3/4 ==> tres cuartos | fraction
        1/12 ==> un doceavo | fraction
        2½ ==> dos y medio | mixed number
        91 123 45 67 ==> noventa y uno ciento veintitrés cuarenta y cinco sesenta y siete | telephone
        no sé =/=> número sé | a word that could be a sign
        8:45 =/=> ocho menos cuarto | another hour
        trece =/=> treinta | other numbers
        año =/=> ano | tilde matters
        """,
    ),
)
