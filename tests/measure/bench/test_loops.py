"""What is real text and what is not, on stated texts, and with the tokenizers that cut Polish finely and coarsely."""

import pytest

from spectool.measure.bench.results import loops
from spectool.runtime.demo_models import demo_path
from spectool.tokenization.opening import open_tokenizer
from spectool.tokenization.tokenizer import Tokenizer

REAL = {
    "prose": (
        "Wisła przepływa przez Kraków, Warszawę i Toruń, a do morza wpada koło Gdańska. Wiosną, gdy topnieją śniegi, "
        "poziom wody rośnie i łąki nad brzegiem stoją pod wodą. Flisacy spławiali nią drewno i zboże, dziś pływają "
        "po niej statki wycieczkowe. W wielu miastach bulwary nad rzeką stały się miejscem spotkań i koncertów."
    ),
    "a list": (
        "1. Kraków to dawna stolica Polski z zamkiem na Wawelu.\n"
        "2. Warszawa to stolica Polski i jej największe miasto.\n"
        "3. Toruń to miasto Mikołaja Kopernika i pierników.\n"
        "4. Płock to najstarsze miasto na Mazowszu.\n"
        "5. Sandomierz to małe miasto na wysokiej skarpie."
    ),
    "a table": (
        "| miasto | ludność | województwo |\n| --- | --- | --- |\n| Kraków | 803 tys. | małopolskie |\n"
        "| Warszawa | 1862 tys. | mazowieckie |\n| Toruń | 196 tys. | kujawsko-pomorskie |\n| Płock | 112 tys. | "
        "mazowieckie |\n| Gdańsk | 486 tys. | pomorskie |\n| Puławy | 46 tys. | lubelskie |"
    ),
    "code": (
        "def srednia(liczby):\n    if not liczby:\n        return 0.0\n    suma = 0.0\n    for liczba in liczby:\n"
        "        suma += liczba\n    return suma / len(liczby)\n\n\ndef mediana(liczby):\n    if not liczby:\n"
        "        return 0.0\n    uporzadkowane = sorted(liczby)\n    srodek = len(uporzadkowane) // 2\n"
        "    if len(uporzadkowane) % 2:\n        return uporzadkowane[srodek]\n"
        "    return (uporzadkowane[srodek - 1] + uporzadkowane[srodek]) / 2\n"
    ),
    "a poem with a refrain": (
        "Szła dzieweczka po wodę,\nniosła dzban na ramieniu.\nHej, zielony gaju, hej,\nnie szum mi tak od rana.\n\n"
        "Spotkała ją sąsiadka,\nco wracała z kiermaszu.\nHej, zielony gaju, hej,\nnie szum mi tak od rana.\n\n"
        "Pytała o pogodę,\no brata i o kozę.\nHej, zielony gaju, hej,\nnie szum mi tak od rana."
    ),
}
LOOPING = {
    "a token": "Miasto nad rzeką to" + " to" * 60,
    "a word": "Najpierw trzeba przyznać, że" + " więc wiście" * 20,
    "a phrase": "Opisz" + " do komunikacji miejskiej w mieście." * 10,
    "a sentence": "Kraków jest miastem." + " Zamek stoi na wzgórzu nad Wisłą i ma wysokie mury." * 5,
    "a numbered item": "".join(f"{n}. Umyj warzywa i pokrój je w drobną kostkę.\n" for n in range(1, 9)),
    "two lines in turn": "Zdysła,\n\nPodniejszenie:\n\nDzysła,\n\nPodniejszenie:\n\n" * 6,
    "the end of good prose": REAL["prose"][:230] + " i tak dalej, i tak dalej, bez końca" * 8,
}


@pytest.fixture(params=["target", "other"], scope="module")
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return open_tokenizer(demo_path(request.param))


@pytest.mark.parametrize("name", REAL)
def test_real_text_does_not_loop(tokenizer: Tokenizer, name: str) -> None:
    assert not loops(tokenizer.encode(REAL[name]))


@pytest.mark.parametrize("name", LOOPING)
def test_text_that_loops_is_found(tokenizer: Tokenizer, name: str) -> None:
    assert loops(tokenizer.encode(LOOPING[name]))


def test_short_outputs_do_not_loop() -> None:
    assert not any(loops([7] * tokens) for tokens in range(5))


def test_what_counts_is_the_share_of_runs_that_occur_before() -> None:
    whole = [*range(10), *range(10)]  # of 17 runs, 7 occur before, and none in the second half
    assert not loops(whole) and loops([*whole, *range(3)])
    assert loops([*range(40), *[1, 2] * 6]) is False and loops([*range(12), *[1, 2] * 6])
