"""The next word is generated, everything before it is given, nothing after it is visible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from noise2text.core.errors import Problem
from noise2text.data.layouts.joint import JointLayout
from noise2text.data.layouts.next_word import WORD_START_RULES, NextWordLayout
from noise2text.data.layouts.template import Template
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer, learn_bpe, load_wordpiece

PAD, BOS, SEP, EOS, DASH = 0, 1, 2, 3, 9
LAYOUT = NextWordLayout(
    PAD, bos=BOS, sep=SEP, eos=EOS, width=14, word_start_tokens=(DASH,), max_word_tokens=20
)
PAIR = (
    RaggedRows.from_lists([[5, DASH]]),
    RaggedRows.from_lists([[6, 7, DASH, 8, DASH, 5]]),
)  # the target has three words
HEAD = [BOS, 5, DASH, SEP]


@pytest.mark.parametrize(
    ("u", "given", "written"),
    [
        (0.0, [], [6, 7]),
        (0.33, [], [6, 7]),
        (0.34, [6, 7], [DASH, 8]),
        (0.66, [6, 7], [DASH, 8]),
        (0.67, [6, 7, DASH, 8], [DASH, 5, EOS]),
        (0.999, [6, 7, DASH, 8], [DASH, 5, EOS]),
    ],
)
def test_chance_chooses_the_word_and_only_the_last_brings_the_end(
    u: float, given: list[int], written: list[int]
) -> None:
    canvas = LAYOUT.randomize(LAYOUT.make_canvas(*PAIR), torch.tensor([u]))
    row = HEAD + given + written
    assert canvas.tokens.tolist() == [row + [PAD] * (14 - len(row))]
    assert canvas.given.sum().item() == len(HEAD + given)
    assert canvas.given[0, : len(HEAD + given)].all()
    assert torch.equal(canvas.scored, ~canvas.given)
    assert not canvas.padding.any()


def test_rounds_generate_every_token_once_with_the_words_before_it_given() -> None:
    short = RaggedRows.from_lists([[5, DASH], [5, DASH]]), RaggedRows.from_lists([[6, 7, DASH, 8], [6]])
    layout = replace(LAYOUT, max_word_tokens=2)
    rounds = list(layout.generation_rounds(layout.make_canvas(*short)))
    generated = [
        [each.tokens[row][~each.given[row] & ~each.padding[row]].tolist() for each in rounds]
        for row in (0, 1)
    ]
    assert generated == [[[6, 7], [DASH, 8], [EOS, PAD]], [[6, EOS], [], []]]
    assert [each.tokens[0][each.given[0]].tolist() for each in rounds] == [
        HEAD,
        [*HEAD, 6, 7],
        [*HEAD, 6, 7, DASH, 8],
    ]
    for each in rounds:
        assert torch.equal(each.scored, ~each.given & ~each.padding)


def test_every_word_is_drawn_equally_often() -> None:
    rows = 3000
    canvas = LAYOUT.make_canvas(
        RaggedRows.from_lists([[5, DASH]] * rows), RaggedRows.from_lists([[6, 7, DASH, 8, DASH, 5]] * rows)
    )
    varied = LAYOUT.randomize(canvas, torch.arange(rows, dtype=torch.float64) / rows)
    assert varied.given.sum(1).bincount().tolist() == [0] * 4 + [1000, 0, 1000, 0, 1000]


def test_an_empty_target_is_its_end() -> None:
    canvas = LAYOUT.randomize(
        LAYOUT.make_canvas(RaggedRows.from_lists([[5]]), RaggedRows.from_lists([[]])), torch.tensor([0.7])
    )
    assert canvas.tokens[0, :4].tolist() == [BOS, 5, SEP, EOS]
    assert canvas.given.sum().item() == 3


def test_beyond_its_reach_nothing_is_seen_or_scored() -> None:
    near = NextWordLayout(
        PAD, bos=BOS, sep=SEP, eos=EOS, width=14, word_start_tokens=(DASH,), max_word_tokens=3
    )
    canvas = near.randomize(near.make_canvas(*PAIR), torch.tensor([0.5]))
    assert canvas.scored.nonzero()[:, 1].tolist() == [6, 7, 8]
    assert canvas.padding.nonzero()[:, 1].tolist() == list(range(9, 14))
    prompt = near.make_empty_canvas(canvas.source, torch.ones(1, 2), width=0)
    assert prompt.scored.nonzero()[:, 1].tolist() == [4, 5, 6] * 2


def test_other_layouts_leave_nothing_to_chance() -> None:
    layout = JointLayout(PAD, bos=BOS, sep=SEP, eos=EOS, width=14)
    canvas = layout.make_canvas(*PAIR)
    assert layout.randomize(canvas, torch.tensor([0.5])) is canvas


def test_a_prefix_is_given_and_any_other_template_is_refused() -> None:
    prompt = LAYOUT.make_empty_canvas(LAYOUT.make_source(PAIR[0]), torch.ones(1, 1), width=0)
    held = LAYOUT.apply_template(prompt, Template(((6, 7), ()), (None,)))
    assert held.tokens[0, held.given[0]].tolist() == [*HEAD, 6, 7]
    for template in (Template(((), (6,)), (None,)), Template(((6,), ()), (3,))):
        with pytest.raises(Problem, match="takes a prefix, but no suffix"):
            LAYOUT.apply_template(prompt, template)


def test_where_words_begin_is_the_vocabularys_rule(tokenizer: Tokenizer, tmp_path: Path) -> None:
    def shown(words: str, known: Tokenizer) -> set[str]:
        return {known.token_texts[token] for token in WORD_START_RULES[words](known)}

    assert shown("signs", tokenizer) == set(" ,.-")
    assert shown("spaces", tokenizer) == {" "}
    bpe = learn_bpe(["the house is green, the house-boat is red"] * 2, size=290)
    word_start_tokens = set(WORD_START_RULES["spaces"](bpe))
    (row,) = bpe.encode(["the house-boat is red"])
    words = "".join("|" * (token in word_start_tokens) + bpe.token_texts[token] for token in row)
    assert words == "the| house-boat| is| red"
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nwalk\n##ing\n##ed\nhome\n")
    assert {"walk", "home"} <= shown("spaces", load_wordpiece(vocabulary))
    assert not {"##ing", "##ed"} & shown("spaces", load_wordpiece(vocabulary))


def test_the_text_stands_after_the_separator_for_each_candidate_of_any_layout() -> None:
    sources = LAYOUT.make_source(RaggedRows.from_lists([[5, DASH], [5]]))
    prompt = LAYOUT.make_empty_canvas(sources, torch.zeros(2, 2), width=0)
    assert LAYOUT.target_mask(prompt).int().argmax(1).tolist() == [4, 4, 3, 3]
    held = replace(prompt, given=prompt.given | (torch.arange(14) < 8))  # words that were written before
    assert torch.equal(LAYOUT.target_mask(held), LAYOUT.target_mask(prompt))
    assert torch.equal(
        LAYOUT.target_mask(LAYOUT.randomize(prompt, torch.zeros(4))), LAYOUT.target_mask(prompt)
    )
