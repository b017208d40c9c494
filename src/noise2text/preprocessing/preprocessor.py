"""A preprocessor turns a text into sources that a model knows, and their outputs into one text again.

    text → sentences → ordinary case → clauses that fit → placeholders → final punctuation → sources
    outputs → values for placeholders, no added marks → joined (models/preprocessed_requests.py)

Each part is switched on by its name in the setting `preprocess`:

- sentences    several sentences in a line are generated one by one
- clauses      a sentence that is too long is split at clauses (`clause_words`), and never truncated
- case         a text in capitals or in lower case gets ordinary case (`truecasing.py`)
- punctuation  a sentence without a final mark gets one, which the output loses again
- copies       numbers, times, prices, addresses and known names are copied (`placeholders.py`), emoji are
               kept at the end, and candidates with the source's numbers are preferred
               (`generation/faithful_copies.py`)
- language     a text in another language gets a warning (`language_check.py`)

Each text is preprocessed alone, so that its output does not depend on the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from noise2text.core.config import Config, option
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.preprocessing.language_check import LANGUAGE_NAMES, find_other_language
from noise2text.preprocessing.placeholders import replace_values
from noise2text.preprocessing.restoration import Restoration, restore_text
from noise2text.preprocessing.sentence_splitting import MAX_WORD, Clause, split_clauses, split_sentences
from noise2text.preprocessing.text_rules import TextRules, load_text_rules
from noise2text.preprocessing.truecasing import restore_case

__all__ = [
    "PREPROCESSING_STEPS",
    "PreprocessedText",
    "PreprocessingConfig",
    "Preprocessor",
    "Segment",
    "build_preprocessor",
]

PREPROCESSING_STEPS = ("sentences", "clauses", "case", "punctuation", "copies", "language")
_EMOJI = re.compile(
    "(?:[\U0001f000-\U0001faff\u2600-\u27bf\u2b50\u2b55][\ufe0f\u200d\U0001f3fb-\U0001f3ff]*)+", re.UNICODE
)
_FINAL_MARK = re.compile(r"[.!?…:;,][\"'”“»)\]]*$")
_OUTPUT_FINAL_MARK = re.compile(r"[.!?]+\s*$")
_FIXED_OUTPUT = ("prefix", "suffix", "template", "length")  # settings that are about the whole output


@dataclass(frozen=True)
class PreprocessingConfig(Config):
    """What is done to a text before a model reads it: a group of settings of generation configs."""

    preprocess: str = option(
        "",
        "what is done to texts first, separated by commas: "
        + ", ".join(PREPROCESSING_STEPS)
        + "; empty for nothing",
    )
    text_rules: str = option("", "languages whose rules preprocess follows, such as de-en")
    clause_words: int = option(
        0, "words above which preprocess=clauses splits a sentence; 0 if it is too long", minimum=0
    )

    @property
    def preprocessing_steps(self) -> frozenset[str]:
        """The names in `preprocess`."""
        return frozenset(name.strip() for name in self.preprocess.split(",") if name.strip())

    def __post_init__(self) -> None:
        unknown = sorted(self.preprocessing_steps - set(PREPROCESSING_STEPS))
        if unknown:
            raise Problem(
                f"The setting preprocess has no {unknown[0]!r}: choose from "
                f"{', '.join(PREPROCESSING_STEPS)}, with commas between them."
            )
        if self.preprocessing_steps:
            if not self.text_rules:
                raise Problem("The setting preprocess needs text_rules: set it, too, e.g. text_rules=de-en.")
            load_text_rules(self.text_rules)
        super().__post_init__()


@dataclass(frozen=True)
class Segment:
    """A source for the model, and what makes its output a part of the text.

    Fields:
        source: what the model reads.
        before, after: text before and after the output, such as a space, or an emoji.
        restorations: undo what was done to the source.
    """

    source: str
    before: str = ""
    after: str = ""
    restorations: tuple[Restoration, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the output is the part of the text as it is."""
        return not (self.before or self.after or self.restorations)

    def restore(self, output: str) -> str:
        """The part of the text that this output becomes."""
        return self.before + restore_text(output, self.restorations) + self.after


@dataclass(frozen=True)
class PreprocessedText:
    """The segments of a text, and warnings about it. `fixed` is the output of a text without segments."""

    segments: tuple[Segment, ...]
    warnings: tuple[str, ...] = ()
    fixed: str = ""


@dataclass(frozen=True)
class Preprocessor:
    """Prepares texts for one model."""

    parts: frozenset[str]
    rules: TextRules
    tokenizer: Tokenizer
    max_source: int
    clause_words: int = 0

    def __call__(self, text: str) -> PreprocessedText:
        """The text in segments."""
        warnings = self._check_language(text) if "language" in self.parts else ()
        emoji = "".join(_EMOJI.findall(text)) if "copies" in self.parts else ""
        words = _EMOJI.sub(" ", text).strip() if emoji else text
        if not words.strip():
            return PreprocessedText((), warnings, emoji)
        sentences = split_sentences(words, self.rules) if "sentences" in self.parts else [words]
        segments = [
            self._make_segment(clause, number=number, count=len(clauses), first=not index and not number)
            for index, clauses in enumerate(map(self._split, sentences))
            for number, clause in enumerate(clauses)
        ]
        if emoji:
            last = segments[-1]
            segments[-1] = Segment(last.source, last.before, f"{last.after} {emoji}", last.restorations)
        return PreprocessedText(tuple(segments), warnings)

    def _check_language(self, text: str) -> tuple[str, ...]:
        other = find_other_language(text, self.rules.language)
        expected = LANGUAGE_NAMES[self.rules.language]
        return (f"The text looks like {other}; this model reads {expected}.",) if other else ()

    def _split(self, sentence: str) -> list[Clause]:
        if "case" in self.parts and _has_only_words(sentence):
            sentence = restore_case(sentence, self.rules, self.tokenizer)
        if "clauses" not in self.parts:
            return [Clause(sentence)]
        return split_clauses(sentence, self.rules, max_words=self.clause_words, fits=self._fits)

    def _fits(self, text: str) -> bool:
        return self.tokenizer.has_fewer_tokens(text, self.max_source)

    def _make_segment(self, clause: Clause, *, number: int, count: int, first: bool) -> Segment:
        """The segment of one clause of `count` clauses of a sentence."""
        source = clause.text
        restorations: tuple[Restoration, ...] = ()
        if number:
            source = source[0].upper() + source[1:]  # the model knows whole sentences
        if "copies" in self.parts and _has_only_words(source):
            source, restorations = replace_values(source, self.rules)
        adds_mark = not _FINAL_MARK.search(source) and ("punctuation" in self.parts or count > 1)
        if adds_mark:
            source += self._choose_mark(source) if count == 1 else "."
            restorations = (*restorations, Restoration(_OUTPUT_FINAL_MARK, lambda match: ""))
        if number:
            restorations = (*restorations, self._lower_first_word())
        return Segment(source, "" if first else clause.joint or " ", "", restorations)

    def _choose_mark(self, sentence: str) -> str:
        word = re.match(r"\W*(\w+)", sentence)
        return "?" if word and word[1].lower() in self.rules.question_words else "."

    def _lower_first_word(self) -> Restoration:
        words = "|".join(re.escape(word.capitalize()) for word in sorted(self.rules.joined_in_lower_case))
        return Restoration(re.compile(rf"\A\s*(?:{words})(?![\w'])"), lambda match: match[0].lower())


def _has_only_words(text: str) -> bool:
    """Whether no word is longer than words are: patterns for names and numbers take its length squared."""
    return len(text) <= MAX_WORD or all(len(word) <= MAX_WORD for word in text.split())


def build_preprocessor(config: object, tokenizer: Tokenizer, max_source: int) -> Preprocessor | None:
    """The preprocessor that a generation config asks for; None for none.

    A prefix, a suffix, a template or a length is about the whole output, so that texts then stay whole.
    """
    if not isinstance(config, PreprocessingConfig) or not config.preprocessing_steps:
        return None
    parts = config.preprocessing_steps
    if any(getattr(config, name, None) for name in _FIXED_OUTPUT):
        parts &= {"case", "language"}
    rules = load_text_rules(config.text_rules)
    return Preprocessor(parts, rules, tokenizer, max_source, config.clause_words)
