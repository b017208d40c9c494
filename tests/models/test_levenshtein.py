"""The Levenshtein Transformer: policies edit as they say, and knowing ones mend any draft in one round."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noise2text.core.random import key
from noise2text.data.layouts.canvas import Canvas, Split
from noise2text.data.ragged import Rows
from noise2text.models.baseline_config import LevenshteinSettings
from noise2text.models.levenshtein import EditObjective, Marks, Page, Policies, Refiner, bounded
from noise2text.nn.denoiser import Memory
from noise2text.nn.draft_transformer import Editor
from noise2text.nn.embeddings import Space

MARKS = Marks(pad=0, begin=1, end=2, placeholder=3)
VOCABULARY, MOST, LONGEST = 12, 4, 9
FORBIDDEN = torch.arange(VOCABULARY) < 4
SOURCES = [[8, 9, 10, 11], [5], [6, 7]]
TARGETS = [[5, 6, 7, 6], [8, 8, 9, 10, 11, 4], [7]]


def policies_of(**changes: Any) -> Policies:
    torch.manual_seed(0)
    shape: dict[str, Any] = {"width": 16, "ffn": 32, "heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    positions = {"source_positions": 8, "target_positions": LONGEST + 2}
    editor = Editor(Space(VOCABULARY, 16), dropout=0.0, **shape, **positions)
    return Policies(editor, width=16, most=MOST).eval()


def canvas_of(*, width: int = 0) -> Canvas:
    return Split(0).canvas(Rows.of(SOURCES), Rows.of(TARGETS), shape=(0, width))


def objective_of(policies: Policies, *, from_nothing: float = 0.0) -> EditObjective:
    return EditObjective(policies, MARKS, forbidden=FORBIDDEN, smoothing=0.1, from_nothing=from_nothing)


class Knowing(Policies):
    """Policies that know the text, whose tokens all differ: they delete others and open the right gaps."""

    def __init__(self, wanted: list[int]) -> None:
        nn.Module.__init__(self)
        self.wanted, self.most = wanted, 20

    def deletions(self, tokens: Tensor, padding: Tensor, memory: Memory) -> Tensor:
        wrong = ~torch.isin(tokens, torch.tensor(self.wanted))
        return torch.stack([~wrong, wrong], -1).float()

    def openings(self, tokens: Tensor, padding: Tensor, memory: Memory) -> Tensor:
        places = {token: place for place, token in enumerate(self.wanted)}
        places |= {MARKS.begin: -1, MARKS.end: len(self.wanted), MARKS.pad: len(self.wanted)}
        where = tokens.clone().apply_(lambda token: places[token])
        gaps = (where.diff(dim=1) - 1).clamp(min=0)
        return nn.functional.one_hot(gaps, self.most + 1).float()

    def words(
        self, tokens: Tensor, padding: Tensor, memory: Memory, forbidden: Tensor | None = None
    ) -> Tensor:
        row = torch.tensor([0, *self.wanted, *[0] * tokens.shape[1]])[: tokens.shape[1]]
        return nn.functional.one_hot(row.expand_as(tokens), VOCABULARY).float()


NOTHING: Any = None  # a memory that is not looked at


def page_of(rows: list[list[int]]) -> Page:
    width = max(map(len, rows)) + 2
    tokens = torch.tensor([[1, *row, 2, *[0] * (width - 2 - len(row))] for row in rows])
    bound = (tokens == 1) + 2 * (tokens == 2).long()
    return Page(tokens, torch.zeros(tokens.shape), bound)


def test_policies_that_know_the_text_mend_any_drafts_in_one_batch_and_stop() -> None:
    wanted = [7, 5, 8, 6]
    refiner = Refiner(Knowing(wanted), MARKS, FORBIDDEN, LONGEST)
    drafts = page_of([[], [9, 5, 10, 6], [7, 5, 8, 6], [8], [9, 9, 9, 9, 9]])
    left = refiner.delete(drafts, NOTHING)
    assert left.tokens[1].tolist() == [1, 5, 6, 2, 0, 0, 0]
    rounds = list(refiner.refine(left, NOTHING, LevenshteinSettings(iterations=9)))
    assert [page.tokens.tolist() for _, page in rounds] == 2 * [5 * [[1, *wanted, 2]]]
    assert (rounds[0][0].tokens[1] == torch.tensor([1, 3, 5, 3, 6, 2])).all()


def test_no_text_grows_past_the_longest_and_given_tokens_stay_together() -> None:
    refiner = Refiner(Knowing([7, 5, 8, 6, 9, 10, 11, 4]), MARKS, FORBIDDEN, longest=5)
    start = refiner.start([7], [11, 4], sentences=2)
    opened = refiner.open(start, NOTHING, penalty=0.0)
    assert opened.tokens.tolist() == 2 * [[1, 7, 3, 3, 11, 4, 2]]
    gone = refiner.delete(Page(start.tokens + 4, start.scores, start.bound), NOTHING)
    assert torch.equal(gone.tokens, start.tokens + 4)  # wrong now, but given


def test_a_penalty_makes_inserting_nothing_less_likely() -> None:
    refiner = Refiner(policies_of(), MARKS, FORBIDDEN, LONGEST)
    memory = refiner.policies.editor.read(Split(0).source(Rows.of(SOURCES)))
    start = refiner.start([], [], sentences=3)
    with torch.no_grad():
        refiner.policies.opens.weight.zero_()
        assert refiner.open(start, memory, penalty=0.0).tokens.shape == (3, 2)
        assert refiner.open(start, memory, penalty=0.1).tokens.shape == (3, 3)


def test_scores_and_specials_of_what_is_filled() -> None:
    policies = policies_of()
    refiner = Refiner(policies, MARKS, FORBIDDEN, LONGEST)
    memory = policies.editor.read(Split(0).source(Rows.of(SOURCES[:1])))
    tokens = torch.tensor([[1, 3, 7, 3, 2]])
    page = Page(tokens, torch.tensor([[0.0, 0, -5, 0, 0]]), torch.tensor([[1, 0, 0, 0, 2]]))
    with torch.no_grad():
        filled = refiner.fill(page, memory)
        log_p = policies.words(tokens, tokens == 0, memory, FORBIDDEN)
    assert filled.scores[0, 2] == -5
    for place in (1, 3):
        assert filled.tokens[0, place] == log_p[0, place].argmax() >= 4
        assert filled.scores[0, place] == log_p[0, place].max()


@pytest.mark.parametrize("width", [0, LONGEST])
def test_the_reference_stands_between_its_marks(width: int) -> None:
    rows = bounded(canvas_of(width=width), MARKS)
    assert rows.shape[1] == max(width, 6) + 2
    for row, target in zip(rows.tolist(), TARGETS, strict=True):
        assert row == [1, *target, 2] + [0] * (len(row) - len(target) - 2)


def test_training_counts_every_gap_every_hole_and_every_token_once() -> None:
    canvas, objective = canvas_of(), objective_of(policies_of())
    draws = objective.draw(canvas, key(0, torch.arange(3)), key(0))
    tallies = objective(canvas, draws)
    dropped, n = draws.dropped.sum(1), torch.tensor([4, 6, 1])
    assert torch.equal(tallies["open"].mask.sum(1), n - dropped + 1)
    assert torch.equal(tallies["fill"].mask.sum(1), dropped)
    assert torch.equal(tallies["delete"].mask.sum(1), n)
    assert {name: int(count) for name, count in objective.counts(canvas).items()} == dict.fromkeys(
        tallies, 11
    )


def test_neither_padding_nor_the_batch_changes_the_losses() -> None:
    policies = policies_of()
    objective, keys = objective_of(policies), key(0, torch.arange(3))
    narrow, wide = (
        objective(canvas, objective.draw(canvas, keys, key(0)))
        for canvas in (canvas_of(), canvas_of(width=LONGEST))
    )
    for name in narrow:
        assert torch.allclose(narrow[name].total(), wide[name].total(), atol=1e-4)


def test_the_models_own_tokens_are_drawn_by_their_probability_and_are_never_special() -> None:
    objective = objective_of(policies_of())
    log_p = torch.log_softmax(torch.linspace(-1, 1, VOCABULARY).repeat(1, 5000, 1), -1)
    drawn = objective._sampled(log_p, (torch.arange(5000) / 5000)[None].double())
    shares = torch.bincount(drawn[0], minlength=VOCABULARY) / 5000
    expected = log_p[0, 0].masked_fill(FORBIDDEN, -torch.inf).softmax(-1)
    assert torch.allclose(shares, expected, atol=1e-3)


def test_every_parameter_gets_a_gradient() -> None:
    policies = policies_of()
    objective, canvas = objective_of(policies), canvas_of()
    tallies = objective(canvas, objective.draw(canvas, key(0, torch.arange(3)), key(0)))
    objective.loss({name: tally.total() for name, tally in tallies.items()}).backward()
    for name, parameter in policies.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_at_times_nothing_is_dropped_and_all_numbers_are_alike() -> None:
    rows = Rows.of([[5, 6, 7]] * 4000)
    canvas = Split(0).canvas(rows, rows)
    draws = objective_of(policies_of()).draw(canvas, key(1, torch.arange(4000)), key(0))
    shares = torch.bincount(draws.dropped.sum(1)) / 4000
    assert torch.allclose(shares, torch.full((4,), 1 / 4), atol=0.03)


def test_from_nothing_drops_the_whole_reference() -> None:
    canvas = canvas_of()
    keys = key(0, torch.arange(3))
    draws = objective_of(policies_of(), from_nothing=1.0).draw(canvas, keys, key(0))
    assert torch.equal(draws.dropped[:, 1:-1], canvas.scored)
