"""The Levenshtein Transformer: policies edit as they say, and knowing ones mend any draft in one round."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noise2text.core.random import make_key
from noise2text.data.layouts.base import Canvas
from noise2text.data.layouts.split import SplitLayout
from noise2text.data.ragged import RaggedRows
from noise2text.generation.decoder import SourceBatch
from noise2text.models.baseline_config import LevenshteinGenerationConfig
from noise2text.models.levenshtein import DraftBatch, EditPolicies, LevenshteinDecoder, SpecialTokens
from noise2text.models.levenshtein_objective import LevenshteinObjective, add_boundary_tokens
from noise2text.nn.denoiser import EncoderOutput
from noise2text.nn.embeddings import TokenEmbedding
from noise2text.nn.layers import LayerShape
from noise2text.nn.nonautoregressive_transformer import NonAutoregressiveTransformer

SPECIAL_TOKENS = SpecialTokens(pad=0, bos=1, eos=2, placeholder=3)
VOCABULARY, MAX_PLACEHOLDERS, LONGEST = 12, 4, 9
FORBIDDEN = torch.arange(VOCABULARY) < 4
SOURCES = [[8, 9, 10, 11], [5], [6, 7]]
TARGETS = [[5, 6, 7, 6], [8, 8, 9, 10, 11, 4], [7]]


def policies_of(**changes: Any) -> EditPolicies:
    torch.manual_seed(0)
    shape, layers = LayerShape(16, 32, 2, dropout=0.0), {"encoder_layers": 1, "decoder_layers": 1}
    positions = {"source_positions": 8, "target_positions": LONGEST + 2}
    transformer = NonAutoregressiveTransformer(TokenEmbedding(VOCABULARY, 16), shape, **layers, **positions)
    return EditPolicies(transformer, model_dim=16, max_placeholders=MAX_PLACEHOLDERS).eval()


def canvas_of(*, width: int = 0) -> Canvas:
    return SplitLayout(0).make_canvas(
        RaggedRows.from_lists(SOURCES), RaggedRows.from_lists(TARGETS), shape=(0, width)
    )


def objective_of(policies: EditPolicies, *, empty_draft_rate: float = 0.0) -> LevenshteinObjective:
    return LevenshteinObjective(
        policies, SPECIAL_TOKENS, forbidden=FORBIDDEN, label_smoothing=0.1, empty_draft_rate=empty_draft_rate
    )


class Knowing(EditPolicies):
    """Policies that know the text, whose tokens all differ: they delete others and open the right gaps."""

    def __init__(self, wanted: list[int]) -> None:
        nn.Module.__init__(self)
        self.wanted, self.max_placeholders = wanted, 20

    def deletion_log_probs(self, tokens: Tensor, padding: Tensor, encoded: EncoderOutput) -> Tensor:
        wrong = ~torch.isin(tokens, torch.tensor(self.wanted))
        return torch.stack([~wrong, wrong], -1).float()

    def placeholder_log_probs(self, tokens: Tensor, padding: Tensor, encoded: EncoderOutput) -> Tensor:
        positions = {token: position for position, token in enumerate(self.wanted)}
        positions |= {
            SPECIAL_TOKENS.bos: -1,
            SPECIAL_TOKENS.eos: len(self.wanted),
            SPECIAL_TOKENS.pad: len(self.wanted),
        }
        where = tokens.clone().apply_(lambda token: positions[token])
        gaps = (where.diff(dim=1) - 1).clamp(min=0)
        return nn.functional.one_hot(gaps, self.max_placeholders + 1).float()

    def token_log_probs(
        self, tokens: Tensor, padding: Tensor, encoded: EncoderOutput, forbidden: Tensor | None = None
    ) -> Tensor:
        row = torch.tensor([0, *self.wanted, *[0] * tokens.shape[1]])[: tokens.shape[1]]
        return nn.functional.one_hot(row.expand_as(tokens), VOCABULARY).float()


NOTHING: Any = None  # encoder output that no policy reads


def decoder_of(policies: EditPolicies, **changes: Any) -> LevenshteinDecoder:
    parts: dict[str, Any] = {
        "max_length": LONGEST,
        "layout": SplitLayout(0),
        "config": LevenshteinGenerationConfig(),
    } | changes
    return LevenshteinDecoder(policies, SPECIAL_TOKENS, FORBIDDEN, **parts)


def drafts_of(rows: list[list[int]]) -> DraftBatch:
    width = max(map(len, rows)) + 2
    tokens = torch.tensor([[1, *row, 2, *[0] * (width - 2 - len(row))] for row in rows])
    given_part = (tokens == 1) + 2 * (tokens == 2).long()
    return DraftBatch(tokens, torch.zeros(tokens.shape), given_part)


def test_policies_that_know_the_text_mend_any_drafts_in_one_batch_and_stop() -> None:
    wanted = [7, 5, 8, 6]
    decoder = decoder_of(Knowing(wanted), config=LevenshteinGenerationConfig(iterations=9))
    drafts = drafts_of([[], [9, 5, 10, 6], [7, 5, 8, 6], [8], [9, 9, 9, 9, 9]])
    left = decoder.delete_tokens(drafts, NOTHING)
    assert left.tokens[1].tolist() == [1, 5, 6, 2, 0, 0, 0]
    rounds = decoder.refine(left, NOTHING)
    assert [drafts.tokens.tolist() for _, drafts in rounds] == 2 * [5 * [[1, *wanted, 2]]]
    assert (rounds[0][0].tokens[1] == torch.tensor([1, 3, 5, 3, 6, 2])).all()


def test_no_text_grows_past_the_longest_and_given_tokens_stay_together() -> None:
    knowing = Knowing([7, 5, 8, 6, 9, 10, 11, 4])
    decoder = decoder_of(knowing, max_length=5, prefix=[7], suffix=[11, 4])
    start = decoder.start_drafts(2)
    opened = decoder.insert_placeholders(start, NOTHING, penalty=0.0)
    assert opened.tokens.tolist() == 2 * [[1, 7, 3, 3, 11, 4, 2]]
    gone = decoder.delete_tokens(DraftBatch(start.tokens + 4, start.scores, start.given_part), NOTHING)
    assert torch.equal(gone.tokens, start.tokens + 4)  # wrong now, but given


def test_a_penalty_makes_inserting_nothing_less_likely() -> None:
    decoder = decoder_of(policies_of())
    encoded = decoder.policies.transformer.encode(SplitLayout(0).make_source(RaggedRows.from_lists(SOURCES)))
    start = decoder.start_drafts(3)
    with torch.no_grad():
        decoder.policies.placeholder_head.weight.zero_()
        assert decoder.insert_placeholders(start, encoded, penalty=0.0).tokens.shape == (3, 2)
        assert decoder.insert_placeholders(start, encoded, penalty=0.1).tokens.shape == (3, 3)


def test_scores_and_specials_of_what_is_filled() -> None:
    policies = policies_of()
    decoder = decoder_of(policies)
    encoded = policies.transformer.encode(SplitLayout(0).make_source(RaggedRows.from_lists(SOURCES[:1])))
    tokens = torch.tensor([[1, 3, 7, 3, 2]])
    drafts = DraftBatch(tokens, torch.tensor([[0.0, 0, -5, 0, 0]]), torch.tensor([[1, 0, 0, 0, 2]]))
    with torch.no_grad():
        filled = decoder.fill_placeholders(drafts, encoded)
        log_p = policies.token_log_probs(tokens, tokens == 0, encoded, FORBIDDEN)
    assert filled.scores[0, 2] == -5
    for position in (1, 3):
        assert filled.tokens[0, position] == log_p[0, position].argmax() >= 4
        assert filled.scores[0, position] == log_p[0, position].max()


def test_a_trace_has_the_drafts_of_every_iteration_and_changes_nothing() -> None:
    decoder = decoder_of(policies_of(), config=LevenshteinGenerationConfig(iterations=3, penalty=3.0))
    batch = SourceBatch(SOURCES, [0, 1, 2])
    traced, plain = (decoder.decode(batch, trace=trace) for trace in (True, False))
    for one, other in zip(traced, plain, strict=True):
        assert (one.tokens, one.scores) == (other.tokens, other.scores)
        assert one.steps[-1].clean == one.tokens
        assert not other.steps


@pytest.mark.parametrize("width", [0, LONGEST])
def test_the_reference_stands_between_its_marks(width: int) -> None:
    rows = add_boundary_tokens(canvas_of(width=width), SPECIAL_TOKENS)
    assert rows.shape[1] == max(width, 6) + 2
    for row, target in zip(rows.tolist(), TARGETS, strict=True):
        assert row == [1, *target, 2] + [0] * (len(row) - len(target) - 2)


def test_training_counts_every_gap_every_hole_and_every_token_once() -> None:
    canvas, objective = canvas_of(), objective_of(policies_of())
    draws = objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0))
    token_losses = objective(canvas, draws)
    dropped, n = draws.dropped.sum(1), torch.tensor([4, 6, 1])
    assert torch.equal(token_losses["open"].mask.sum(1), n - dropped + 1)
    assert torch.equal(token_losses["fill"].mask.sum(1), dropped)
    assert torch.equal(token_losses["delete"].mask.sum(1), n)
    assert {name: int(count) for name, count in objective.counts(canvas).items()} == dict.fromkeys(
        token_losses, 11
    )


def test_neither_padding_nor_the_batch_changes_the_losses() -> None:
    policies = policies_of()
    objective, keys = objective_of(policies), make_key(0, torch.arange(3))
    narrow, wide = (
        objective(canvas, objective.draw(canvas, keys, make_key(0)))
        for canvas in (canvas_of(), canvas_of(width=LONGEST))
    )
    for name in narrow:
        assert torch.allclose(narrow[name].total(), wide[name].total(), atol=1e-4)


def test_the_models_own_tokens_are_drawn_by_their_probability_and_are_never_special() -> None:
    objective = objective_of(policies_of())
    log_p = torch.log_softmax(torch.linspace(-1, 1, VOCABULARY).repeat(1, 5000, 1), -1)
    drawn = objective._sample_tokens(log_p, (torch.arange(5000) / 5000)[None].double())
    shares = torch.bincount(drawn[0], minlength=VOCABULARY) / 5000
    expected = log_p[0, 0].masked_fill(FORBIDDEN, -torch.inf).softmax(-1)
    assert torch.allclose(shares, expected, atol=1e-3)


def test_every_parameter_gets_a_gradient() -> None:
    policies = policies_of()
    objective, canvas = objective_of(policies), canvas_of()
    token_losses = objective(canvas, objective.draw(canvas, make_key(0, torch.arange(3)), make_key(0)))
    objective.loss({name: token_loss.total() for name, token_loss in token_losses.items()}).backward()
    for name, parameter in policies.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_at_times_nothing_is_dropped_and_all_numbers_are_alike() -> None:
    rows = RaggedRows.from_lists([[5, 6, 7]] * 4000)
    canvas = SplitLayout(0).make_canvas(rows, rows)
    draws = objective_of(policies_of()).draw(canvas, make_key(1, torch.arange(4000)), make_key(0))
    shares = torch.bincount(draws.dropped.sum(1)) / 4000
    assert torch.allclose(shares, torch.full((4,), 1 / 4), atol=0.03)


def test_from_nothing_drops_the_whole_reference() -> None:
    canvas = canvas_of()
    keys = make_key(0, torch.arange(3))
    draws = objective_of(policies_of(), empty_draft_rate=1.0).draw(canvas, keys, make_key(0))
    assert torch.equal(draws.dropped[:, 1:-1], canvas.scored)
