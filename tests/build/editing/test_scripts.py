"""Texts of a script or a language: letters decide, also where a text is cut inside a character."""

import random

import pytest

from spectool.build.editing.scripts import ALPHABETS, SCRIPTS, in_languages, in_scripts, split_characters


def test_the_alphabets_hold_their_pangrams_and_nothing_of_the_others() -> None:
    pangrams = {
        "pl": "Pchnąć w tę łódź jeża lub ośm skrzyń fig",
        "uk": "Чуєш їх, доцю, га? Кумедна ж ти, прощайся без ґольфів! Сімʼя",
        "be": "У рудога вераб'я ў сховішчы пад фатэлем ляжаць нейкія гаючыя зёлкі",
        "cs": "Příliš žluťoučký kůň úpěl ďábelské ódy",
        "sk": "Kŕdeľ šťastných ďatľov učí pri ústí Váhu mĺkveho koňa obhrýzať kôru",
        "crh": "Qırımda İslâm Girayğa ötmek, süt, çöñ ve şeftali",
        "ru": "Съешь же ещё этих мягких французских булок, да выпей чаю",
        "de": "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich",
        "lt": "Įlinkdama fechtuotojo špaga sublykčiojusi pragręžė apvalų arbūzą",
        "en": "The quick brown fox jumps over the lazy dog",
    }
    assert pangrams.keys() == ALPHABETS.keys()
    for code, text in pangrams.items():
        assert in_languages([code])(text.encode()), code
    others = {"pl": "uk be cs sk crh ru de lt", "uk": "pl be ru crh en", "be": "uk ru crh pl", "cs": "pl de lt crh uk"}
    for code, them in others.items():
        for other in them.split():
            assert not in_languages([code])(pangrams[other].encode()), (code, other)


def test_a_text_is_in_one_alphabet_and_not_in_two_at_once() -> None:
    both = in_languages(["uk", "ru"])
    assert both("їжак".encode()) and both("объект".encode())
    assert not both("їъ".encode())
    crimean = in_languages(["crh"])
    assert crimean("Къырым".encode()) and crimean("Qırım".encode())
    assert not crimean("Къırım".encode())


def test_scripts_may_stand_together() -> None:
    assert in_scripts(["Cyrl"])("Їжак, 5 км — «так»!".encode())
    assert not in_scripts(["Cyrl"])("їжак USB".encode())
    assert in_scripts(["Cyrl", "Latn"])("їжак USB".encode())
    assert not in_scripts(["Latn"])("αβγ".encode())
    assert in_scripts(["Hani", "Hira"])("漢字かな".encode())
    for code in SCRIPTS:
        assert in_scripts([code])(b" 12,5 % (?)\n"), "no letters"


def test_marks_and_decomposed_letters_fit() -> None:
    assert in_languages(["uk"])("за\u0301мок и\u0306".encode()), "stress, and й in two code points"
    assert not in_languages(["pl"])("n\u0303".encode()), "composed, it is no letter of the alphabet"


def test_an_incomplete_character_counts_by_what_its_bytes_can_begin() -> None:
    cyrillic, latin = in_scripts(["Cyrl"]), in_scripts(["Latn"])
    lead = "я".encode()[:1]
    assert cyrillic(b"a"[:0] + lead) and not latin(lead)
    accent = "ż".encode()[:1]
    assert latin(accent) and not cyrillic(accent)
    assert not cyrillic(b"x" + lead), "what is whole counts as well"
    assert in_languages(["uk"])("ї".encode()[:1]) and not in_languages(["uk"])("ż".encode()[:1])
    emoji = "🙂".encode()
    for cut in range(1, 4):
        assert latin(emoji[:cut]) and cyrillic(emoji[:cut]), "signs fit everywhere"
        assert latin(emoji[cut:]) and cyrillic(emoji[cut:]), "the end of an unknown character may be anything"
    assert in_scripts(["Hani"])("漢".encode()[:2]) and not in_scripts(["Latn"])("漢".encode()[:2])


@pytest.mark.parametrize("seed", range(3))
def test_cutting_a_text_that_fits_never_makes_it_unfit(seed: int) -> None:
    choice = random.Random(seed)
    letters = ALPHABETS["uk"][0] + " .5«—🙂"
    fits, script = in_languages(["uk"]), in_scripts(["Cyrl"])
    for _ in range(300):
        data = "".join(choice.choices(letters, k=8)).encode()
        start, end = sorted(choice.sample(range(len(data) + 1), 2))
        assert fits(data[start:end]), (seed, data, start, end)
        # ʼ is a letter of no script
        assert "ʼ".encode() in data or script(data[start:end]), (seed, data, start, end)


@pytest.mark.parametrize("seed", range(3))
def test_splitting_keeps_every_byte_of_a_text_that_begins_whole(seed: int) -> None:
    choice = random.Random(seed)
    for _ in range(300):
        text = "".join(choice.choices("aż漢🙂я", k=6))
        data = text.encode()[: choice.randrange(20)]
        whole, rest = split_characters(data)
        assert whole.encode() + rest == data, (seed, data)
        assert text.startswith(whole)
