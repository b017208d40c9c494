"""Laws of preprocessing texts: nothing is lost, values are copied, and what is joined fits together."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer, learn_bpe
from noise2text.generation.config import AutoregressiveGenerationConfig, LengthPredictingGenerationConfig
from noise2text.generation.faithful_copies import FaithfulCopies, SourceCopies
from noise2text.generation.mbr import MBR
from noise2text.generation.selection import BestScore, Candidate
from noise2text.preprocessing.language_check import LANGUAGE_NAMES, find_other_language
from noise2text.preprocessing.placeholders import find_values, replace_values
from noise2text.preprocessing.preprocessor import (
    PREPROCESSING_STEPS,
    PreprocessedText,
    Preprocessor,
    build_preprocessor,
)
from noise2text.preprocessing.restoration import restore_text, restore_tokens
from noise2text.preprocessing.sentence_splitting import split_clauses, split_sentences
from noise2text.preprocessing.text_rules import list_text_rules, load_text_rules
from noise2text.preprocessing.truecasing import is_in_one_case, restore_case

RULES = load_text_rules("de-en")
EVERYTHING = ",".join(PREPROCESSING_STEPS)
TRAINING_TEXTS = ["Wo ist der Bahnhof? Der Bahnhof ist dort. Ich sehe das Haus, und das Haus ist rot."] * 3
PIECES = [
    *(
        "Lukas",
        "Annas",
        "Eva",
        "Frau Müller",
        "Herrn Dr. Kai",
        "heißt Bo",
        "namens Zora",
        "Wien",
        "Tom",
        "Haus",
    ),
    *("a@b.de", "www.a.de/b", "https://c.de", "@", "www.", "30", "12,99 €", "14:35 Uhr", "am 3. Mai", "zwei"),
    *("the", "is where", "die", "in", "un", "HALLO", "Straße", "STRASSE", "Где", "駅は", "ª", "ſ", "é"),
    *(".", "!", "?!", "…", "z.B.", "„", "“", "-", "_", "\n", "\u2028", " ", "  "),
]


def lines_of(pieces: list[str]) -> st.SearchStrategy[str]:
    """Lines of these pieces, with spaces, hyphens or nothing between them."""
    return st.lists(st.sampled_from(pieces)).flatmap(
        lambda chosen: st.sampled_from([" ", "", "-"]).map(lambda space: space.join(chosen))
    )


LINES = lines_of(PIECES)
LATIN_LINES = lines_of([piece for piece in PIECES if piece not in ("Где", "駅は")])
LINES_WITHOUT_ADDRESSES = lines_of([piece for piece in PIECES if not re.search("@|://|www", piece)])


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learn_bpe(TRAINING_TEXTS, size=400)


def preprocess(text: str, tokenizer: Tokenizer, *parts: str, **settings: int) -> list[str]:
    max_source = settings.pop("max_source", 500)
    preprocessor = Preprocessor(frozenset(parts), RULES, tokenizer, max_source, **settings)
    return [segment.source for segment in preprocessor(text).segments]


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("Hallo. Wie geht's? Gut!", ["Hallo.", "Wie geht's?", "Gut!"]),
        ("Dr. Meier kommt am 3. Mai.", ["Dr. Meier kommt am 3. Mai."]),
        ("Das kostet z.B. 3.50 Euro.", ["Das kostet z.B. 3.50 Euro."]),
        ("Er sagte: „Komm!“ Dann ging er.", ["Er sagte: „Komm!“", "Dann ging er."]),
        ("Eins.\nZwei", ["Eins.", "Zwei"]),
        ("Siehe www.example.org. Danke.", ["Siehe www.example.org.", "Danke."]),
        ("", []),
    ],
)
def test_a_line_is_split_into_its_sentences(line: str, sentences: list[str]) -> None:
    assert split_sentences(line, RULES) == sentences


@given(LINES)
def test_a_line_break_ends_a_sentence_and_changes_no_other(line: str) -> None:
    assert split_sentences(f"{line}\nEnde.", RULES) == [*split_sentences(line, RULES), "Ende."]


def test_sentences_lose_nothing_but_spaces() -> None:
    line = 'Nein... Doch! "Wirklich?" Ja, um 3. Dann (vielleicht!) nicht?! A. B. Meier & Co. sind da.'
    assert "".join("".join(split_sentences(line, RULES)).split()) == "".join(line.split())


@pytest.mark.parametrize("max_words", [4, 8, 12])
def test_clauses_fit_and_keep_every_word(max_words: int) -> None:
    sentence = (
        "Als wir gestern nach Hause kamen, war die Tür offen, und niemand wusste, wer sie geöffnet "
        "hatte, obwohl alle den ganzen Tag zu Hause gewesen waren und der Hund vor der Tür gelegen hatte"
    )
    clauses = split_clauses(sentence, RULES, max_words=max_words, fits=lambda text: len(text) <= 60)
    assert len(clauses) > 1
    assert all(len(clause.text) <= 60 for clause in clauses)
    assert "".join(clause.joint + clause.text for clause in clauses) == sentence


@pytest.mark.parametrize(
    "sentence", [", , , , a b c d e f g", "a b c d e f g , , , ,", "– – – , a b c d e f", ", ; , ; , ; ,"]
)
def test_no_clause_is_without_text(sentence: str) -> None:
    clauses = split_clauses(sentence, RULES, max_words=4, fits=lambda text: len(text) <= 60)
    assert all(clause.text for clause in clauses)


def test_a_long_sentence_without_any_mark_is_split_and_not_truncated(tokenizer: Tokenizer) -> None:
    sentence = "haus " * 80
    sources = preprocess(sentence, tokenizer, "clauses", max_source=30)
    assert all(len(tokenizer.encode([source])[0]) <= 30 for source in sources)
    assert sum(source.lower().count("haus") for source in sources) == 80


def test_a_short_sentence_stays_whole(tokenizer: Tokenizer) -> None:
    assert preprocess("Ich gehe, du bleibst.", tokenizer, *PREPROCESSING_STEPS, clause_words=20) == [
        "Ich gehe, du bleibst."
    ]


@pytest.mark.parametrize("text", ["WO IST DER BAHNHOF?", "wo ist der bahnhof?"])
def test_texts_in_one_case_get_the_case_of_the_training_texts(text: str, tokenizer: Tokenizer) -> None:
    assert restore_case(text, RULES, tokenizer) == "Wo ist der Bahnhof?"


@pytest.mark.parametrize("text", ["Wo ist der bahnhof?", "USA", "OK!", "12:30", "", "A@B.DE"])
def test_other_texts_keep_their_case(text: str, tokenizer: Tokenizer) -> None:
    assert not is_in_one_case(text)
    assert restore_case(text, RULES, tokenizer) == text


def test_case_leaves_addresses_alone(tokenizer: Tokenizer) -> None:
    written = restore_case("ICH BIN A.B@WEB.DE UND WWW.WEB.DE", RULES, tokenizer)
    assert "A.B@WEB.DE" in written
    assert written.startswith("Ich")
    assert "www.haus.de" in restore_case("das ist www.haus.de", RULES, tokenizer)


@pytest.mark.parametrize(
    ("text", "source"),
    [("Wo ist er", "Wo ist er?"), ("Er ist da", "Er ist da."), ("Er ist da!", "Er ist da!")],
)
def test_a_missing_final_mark_is_added_and_taken_from_the_output(
    text: str, source: str, tokenizer: Tokenizer
) -> None:
    preprocessor = Preprocessor(frozenset(["punctuation"]), RULES, tokenizer, 500)
    (segment,) = preprocessor(text).segments
    assert segment.source == source
    assert segment.restore("Here." if text != source else "Here!") == ("Here" if text != source else "Here!")


@pytest.mark.parametrize(
    ("sentence", "values"),
    [
        ("Das kostet 3,50 €.", ["3.50 euros"]),
        ("Das kostet 1 Euro.", ["1 euro"]),
        ("Es kostet € 1.250,99!", ["1,250.99 euros"]),
        ("Um 14:35 Uhr, nicht um 20 Uhr.", ["14:35", "20:00"]),
        ("Schreib an a.b@c.de oder geh auf https://c.de/x?y=1.", ["a.b@c.de", "https://c.de/x?y=1"]),
        ("Ich habe 3 Katzen und 17 Hunde.", ["17"]),
        ("Am 24. Dezember 1999.", ["24", "1999"]),
        ("Ruf 0176 1234567 an.", ["0176 1234567"]),
        ("Sophies Bruder heißt Krzysztof.", ["Sophie", "Krzysztof"]),
        ("Lukas Schneider wohnt in München.", ["Lukas Schneider", "Munich"]),
        ("Frau Dr. Weiß und Herrn Öztürk.", ["Ms. Dr. Weiß", "Mr. Öztürk"]),
        ("Meine Frau Anna lacht.", ["Anna"]),
        ("Tom hat einen Hund.", []),
    ],
)
def test_values_are_found_and_written_as_the_output_needs_them(sentence: str, values: list[str]) -> None:
    assert [value.written for value in find_values(sentence, RULES)] == values


def test_values_take_the_place_of_their_placeholders() -> None:
    source, restorations = replace_values("Lukas zahlt um 14:35 Uhr 19,99 € an Eva.", RULES)
    assert source == "Tom zahlt um 2:30 Uhr 30 Dollar an Mary."
    output = "At 2:30 p.m. Tom pays Mary $30."
    assert restore_text(output, restorations) == "At 14:35 Lukas pays Eva 19.99 euros."


@given(LINES)
def test_the_values_of_a_sentence_do_not_depend_on_the_values_after_it(line: str) -> None:
    """A sentence is searched for names only if it has a word of one, and likewise for the other values."""
    longer = f"{line} | a@b.de | Lukas | 14:35"
    found = find_values(longer, RULES)
    assert [value for value in found if value.end <= len(line)] == find_values(line, RULES)
    assert [value.written for value in found if value.start > len(line)] == ["a@b.de", "Lukas", "14:35"]


def test_a_stand_in_is_never_a_word_of_the_sentence() -> None:
    source, restorations = replace_values("Tom und Lukas haben 30 und 45 Katzen.", RULES)
    assert source.startswith("Tom und John")
    assert restore_text("Tom and John have 30 and 45 cats.", restorations).startswith("Tom and Lukas")


def test_restored_tokens_are_the_restored_text_and_as_many() -> None:
    _, restorations = replace_values("Lukas kommt um 14:35 Uhr.", RULES)
    tokens = ["T", "om", " comes", " at", " 2", ":", "30", "."]
    restored = restore_tokens(tokens, restorations)
    assert len(restored) == len(tokens)
    assert "".join(restored) == restore_text("".join(tokens), restorations) == "Lukas comes at 14:35."


@pytest.mark.parametrize(
    ("source", "output", "errors"),
    [
        ("Ich habe 3 Katzen.", "I have three cats.", 0),
        ("Ich habe drei Katzen.", "I have 3 cats.", 0),
        ("Ich habe 3 Katzen.", "I have cats.", 1),
        ("Ich habe Katzen.", "I have 3 cats.", 1),
        ("Um 8 Uhr.", "At 8:00.", 0),
        ("Es ist halb drei.", "It's 2:30.", 0),
        ("Tom lacht.", "Tom Tom laughs.", 2),
        ("Das, das ich will.", "What I want.", 0),
        ("Maria lacht.", "Mary laughs.", 0),
    ],
)
def test_copy_errors_are_counted(source: str, output: str, errors: int) -> None:
    assert SourceCopies.of(source, RULES).count_errors(output) == errors


def test_candidates_with_the_numbers_of_the_source_are_preferred_to_likelier_ones() -> None:
    texts = ["I have 4 cats.", "I have three cats.", "I have 3 3 cats."]
    candidates = [
        Candidate(text, (1,), -float(i), source="Ich habe 3 Katzen.") for i, text in enumerate(texts)
    ]
    selector = FaithfulCopies(BestScore(), RULES)
    assert BestScore()(candidates) == 0
    assert selector(candidates) == selector.select_all([candidates, candidates[:1]])[0] == 1
    assert selector.select_all([candidates[:1]]) == [0]  # one is always selected
    assert selector.signature == "faithful|score"


FAITHFUL = ["The cat sat on the mat.", "The cat sat on a mat.", "The cat sat on that mat."]
DOUBLED = ["A cat sat sat here.", "A cat sat sat there."]


def cats(*texts: str) -> list[Candidate]:
    return [Candidate(text, (1,), 0.0, source="Die Katze saß da.") for text in texts]


def test_a_faithful_choice_stands_whatever_the_other_candidates_are() -> None:
    selector = FaithfulCopies(MBR(), RULES)
    for candidates in (cats(*FAITHFUL, *DOUBLED), cats(*DOUBLED, *FAITHFUL)):
        chosen = MBR()(candidates)
        assert candidates[chosen].text in FAITHFUL
        assert selector(candidates) == chosen
        assert selector.utilities(candidates) == MBR().utilities(candidates)


def test_an_unfaithful_choice_gives_way_to_a_faithful_candidate() -> None:
    selector = FaithfulCopies(MBR(), RULES)
    for candidates in (cats(*DOUBLED, *FAITHFUL[:2]), cats(*FAITHFUL[:2], *DOUBLED)):
        assert candidates[MBR()(candidates)].text in DOUBLED
        assert candidates[selector(candidates)].text in FAITHFUL


@given(LINES_WITHOUT_ADDRESSES)
def test_texts_that_are_in_one_case_have_letters_of_one_case(line: str) -> None:
    letters = "".join(each for each in line if each.isalpha())
    in_capitals = len(letters) >= 5 and letters.replace("ß", "").isupper()
    assert is_in_one_case(line) == (letters.islower() or in_capitals)


@given(LINES, st.sampled_from(["A.b@C.de", "https://C.de/x", "www.A.de"]))
def test_the_letters_of_an_address_have_no_part_in_the_case_of_a_text(line: str, address: str) -> None:
    assert is_in_one_case(f"{line} {address}") == is_in_one_case(line)


@given(
    st.lists(st.sampled_from(["I have 3 cats.", "I have cats.", "I have 3 3 cats.", "A cat."]), min_size=1)
)
def test_the_choice_is_the_best_of_those_with_the_fewest_errors(texts: list[str]) -> None:
    source = "Ich habe 3 Katzen."
    candidates = [Candidate(text, (1,), -float(i), source) for i, text in enumerate(texts)]
    errors = [SourceCopies.of(source, RULES).count_errors(text) for text in texts]
    selector = FaithfulCopies(BestScore(), RULES)
    assert selector.select_all([candidates, candidates[:1]]) == [errors.index(min(errors)), 0]


def test_emoji_are_kept_at_the_end(tokenizer: Tokenizer) -> None:
    preprocessor = Preprocessor(frozenset(["copies"]), RULES, tokenizer, 500)
    (segment,) = preprocessor("Ich 😀 komme 👍🏽").segments
    assert "😀" not in segment.source
    assert segment.restore("I come") == "I come 😀👍🏽"
    assert preprocessor("🎉") == PreprocessedText((), fixed="🎉")


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Where is the station?", "English"),
        ("Où est la gare, s'il vous plaît ?", "French"),
        ("¿Dónde está la estación de tren?", "Spanish"),
        ("Где находится вокзал?", "Cyrillic"),
        ("駅はどこですか", "Hiragana"),
        ("Wo ist der Bahnhof?", ""),
        ("Das ist ein Email-Account.", ""),
        ("Tom!", ""),
        ("Hamburg", ""),
        ("", ""),
    ],
)
def test_another_language_is_named_and_german_is_not(text: str, language: str) -> None:
    assert find_other_language(text, "de") == language


FREQUENT_WORDS = {
    language: set(words.split())
    for language, words in tomllib.loads(
        (files("noise2text.preprocessing") / "frequent_words.toml").read_text(encoding="utf-8")
    ).items()
}


@given(LATIN_LINES)
def test_another_language_is_named_if_it_has_two_words_and_twice_as_many_as_the_expected_one(
    line: str,
) -> None:
    words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?", line.lower())
    hits = {each: sum(word in known for word in words) for each, known in FREQUENT_WORDS.items()}
    most = max(hits[each] for each in LANGUAGE_NAMES if each != "de")
    named = {LANGUAGE_NAMES[each] for each in LANGUAGE_NAMES if each != "de" and hits[each] == most}
    assert find_other_language(line, "de") in (named if most > max(1, 2 * hits["de"]) else {""})


def test_what_is_prepared_does_not_depend_on_settings_about_the_whole_output(tokenizer: Tokenizer) -> None:
    config = LengthPredictingGenerationConfig(preprocess=EVERYTHING, text_rules="de-en")
    for changes in ({"prefix": "I"}, {"length": 5}, {"template": "___."}):
        preprocessor = build_preprocessor(dataclasses.replace(config, **changes), tokenizer, 500)
        assert preprocessor is not None
        assert len(preprocessor("Eins. Zwei mit 17 Katzen.").segments) == 1
    assert build_preprocessor(LengthPredictingGenerationConfig(), tokenizer, 500) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preprocess": "sentence", "text_rules": "de-en"}, "no 'sentence'"),
        ({"preprocess": "sentences"}, "needs text_rules"),
        ({"preprocess": "case", "text_rules": "xx-yy"}, "no text rules 'xx-yy'"),
        ({"clause_words": -1}, "clause_words"),
    ],
)
def test_wrong_settings_are_refused_in_a_sentence(settings: dict[str, object], message: str) -> None:
    for config in (LengthPredictingGenerationConfig, AutoregressiveGenerationConfig):
        with pytest.raises(Problem, match=message):
            config(**settings)  # type: ignore[arg-type]


def test_stand_ins_match_what_they_read_or_a_word_for_it() -> None:
    assert list_text_rules() == ["de-en"]
    for kind in ("male", "female", "place", "number", "year"):
        for each in RULES.placeholders[kind]:
            source, restorations = replace_values("nichts", RULES)
            assert (source, restorations) == ("nichts", ())
            assert SourceCopies.of(f"{each.reads} hier", RULES).count_errors(f"{each.reads} here") == 0
