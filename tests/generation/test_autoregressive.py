"""From left to right: beams, samples and their laws, for the Transformer and the GRU alike."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.core.random import make_key
from noise2text.data.ragged import RaggedRows
from noise2text.data.tokenizer import Tokenizer, learn_characters
from noise2text.generation.autoregressive import DecodingState
from noise2text.generation.beam_search import BeamSearch, DiverseBeamSearch
from noise2text.generation.config import AutoregressiveGenerationConfig
from noise2text.generation.decoder import SentenceCandidates, SourceBatch
from noise2text.generation.token_sampling import Sampling
from noise2text.generation.token_search import Search, SearchLimits
from noise2text.models import AutoregressiveModel
from noise2text.models.registry import find_recipe

from ..conftest import shrunk

ROWS = [[8, 9, 10, 11, 12], [13, 14], [20]]
NAMES = pytest.mark.parametrize("name", ["transformer", "gru"])


def build_model(name: str, tokenizer: Tokenizer, **changes: Any) -> AutoregressiveModel:
    """A small untrained model whose every choice depends on all of the past."""
    recipe = find_recipe(name)
    torch.manual_seed(0)
    model: AutoregressiveModel = recipe.build(shrunk(recipe.preset("tiny"), **changes), tokenizer)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model.eval()


def decode(
    model: AutoregressiveModel, rows: list[list[int]] = ROWS, **options: Any
) -> list[SentenceCandidates]:
    indices = options.pop("indices", list(range(len(rows))))
    seed = options.pop("seed", 0)
    decoder = model.build_decoder(AutoregressiveGenerationConfig(**options))
    return decoder.decode(SourceBatch(rows, indices, seed))


@torch.no_grad()
def next_scores(model: AutoregressiveModel, row: list[int], written: list[int]) -> Tensor:
    """log p of every next token, by the whole network, without a cache."""
    encoded = model.network.encode(model.layout.make_source(RaggedRows.from_lists([row])))
    prefix = torch.tensor([[model.tokenizer.bos, *written]])
    return model.network(prefix, encoded)[0, -1].log_softmax(-1)


def greedy(model: AutoregressiveModel, row: list[int]) -> tuple[list[int], float]:
    """The likeliest token again and again, and the sum of their log-probabilities."""
    written: list[int] = []
    total = 0.0
    while True:
        scores = next_scores(model, row, written)
        if len(written) == model.max_target:
            return written, total + scores[model.tokenizer.eos].item()
        best = int(scores.index_fill(0, model.forbidden_tokens, -torch.inf).argmax())
        total += scores[best].item()
        if best == model.tokenizer.eos:
            return written, total
        written.append(best)


def run_search(model: AutoregressiveModel, search_of: Callable[[dict[str, Any]], Search]) -> Search:
    """A search that has written the answers to all rows."""
    eos, pad = model.tokenizer.eos, model.tokenizer.pad
    limits = SearchLimits(eos, pad, model.forbidden_tokens, model.max_target)
    search = search_of({"limits": limits, "length_penalty": 0.0, "device": model.device})
    source = model.layout.make_source(RaggedRows.from_lists(ROWS))
    with torch.inference_mode():
        state = DecodingState(
            model.network, model.network.encode(source), search=search, length=model.max_target + 1
        )
        state.run([model.tokenizer.bos])
    return search


@NAMES
def test_beam_1_is_greedy(name: str, tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    beam = run_search(model, lambda parts: BeamSearch(3, 1, **parts))
    for at, (row, candidates) in enumerate(zip(ROWS, decode(model, beam=1, length_penalty=0.0), strict=True)):
        tokens, score = greedy(model, row)
        assert candidates.tokens == [tokens]
        assert candidates.scores == pytest.approx([score], rel=1e-4)
        assert beam.get_hypotheses()[0][at, 0].tolist()[: len(tokens) + 1] == [*tokens, tokenizer.eos]
        assert beam.get_hypotheses()[1][at].tolist() == pytest.approx([score], rel=1e-4)


@NAMES
def test_top_k_1_is_greedy_whatever_the_seed(name: str, tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    searched = decode(model, beam=1)
    drawn = decode(model, samples=3, top_k=1, temperature=2.0, seed=9)
    for one, three in zip(searched, drawn, strict=True):
        assert three.tokens == one.tokens * 3
        assert three.scores == pytest.approx(one.scores * 3, rel=1e-4)


@NAMES
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_as_wide_as_the_tree_is_exhaustive(name: str, penalty: float) -> None:
    tokenizer = learn_characters(["abc"])
    model = build_model(name, tokenizer, max_target=3)
    row = tokenizer.encode(["abca"])[0]
    letters = tokenizer.encode(["abc"])[0]
    everything = [list(text) for size in range(4) for text in itertools.product(letters, repeat=size)]
    expected = []
    for text in everything:
        ended = [*text, tokenizer.eos]
        total = sum(next_scores(model, row, text[:i])[token].item() for i, token in enumerate(ended))
        expected.append((total / len(ended) ** penalty, text))
    expected.sort(reverse=True)
    candidates = decode(model, [row], beam=len(everything), length_penalty=penalty)[0]
    assert len(candidates.tokens) == len(everything) == 40
    assert candidates.scores == pytest.approx([score for score, _ in expected], rel=1e-4)
    assert candidates.tokens[0] == expected[0][1]
    assert sorted(candidates.tokens) == sorted(everything)
    assert decode(model, [row], beam=4, length_penalty=penalty)[0].scores[0] <= candidates.scores[0] + 1e-5


@NAMES
def test_every_score_is_the_likelihood_over_the_length(name: str, tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    source = "sunday, 7 april"
    for options in ({"beam": 4}, {"samples": 5}, {"beam": 4, "diverse_groups": 2, "diversity": 3.0}):
        made = model.generate([source], length_penalty=0.7, **options)
        sums = model.likelihood([source] * len(made.candidates[0]), made.candidates[0])
        lengths = [len(row) + 1 for row in model.tokenizer.encode(made.candidates[0])]
        expected = [total / length**0.7 for total, length in zip(sums, lengths, strict=True)]
        assert made.scores[0] == pytest.approx(expected, rel=1e-4)


@NAMES
@pytest.mark.parametrize("options", [{"beam": 3}, {"samples": 3}, {"beam": 4, "diverse_groups": 2}])
def test_the_batch_changes_nothing(name: str, options: dict[str, Any], tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    together = decode(model, **options)
    for index, row in enumerate(ROWS):
        alone = decode(model, [row], indices=[index], **options)[0]
        assert alone.tokens == together[index].tokens
        assert alone.scores == pytest.approx(together[index].scores, rel=1e-4)


def test_special_tokens_are_never_written_and_no_text_is_too_long(tokenizer: Tokenizer) -> None:
    model = build_model("transformer", tokenizer)
    for options in ({"beam": 6}, {"samples": 20, "temperature": 5.0}):
        rows = [row for candidates in decode(model, **options) for row in candidates.tokens]
        assert not {token for row in rows for token in row} & model.tokenizer.special_tokens
        assert max(map(len, rows)) <= model.max_target


def test_candidates_come_best_first_and_differ(tokenizer: Tokenizer) -> None:
    decoded = decode(build_model("transformer", tokenizer), beam=6)
    assert len(decoded) == len(ROWS)
    for candidates in decoded:
        assert candidates.scores == sorted(candidates.scores, reverse=True)
        assert len({tuple(row) for row in candidates.tokens}) == 6


LIMITS = SearchLimits(eos=1, pad=0, forbidden_tokens=torch.tensor([0]), max_length=5)


def beam_of(hypotheses: int, *, sentences: int = 1, length_penalty: float = 0.0) -> BeamSearch:
    cpu = torch.device("cpu")
    return BeamSearch(sentences, hypotheses, limits=LIMITS, length_penalty=length_penalty, device=cpu)


def logits_of(*chances: list[float]) -> Tensor:
    return torch.tensor([chances]).log()


def test_an_ended_hypothesis_is_never_extended() -> None:
    beam = beam_of(2)
    beam.step(logits_of([0.1, 0.5, 0.3, 0.1], [0.1, 0.5, 0.3, 0.1]))  # ends at once, or writes 2
    ended, scores = (part.clone() for part in beam.get_hypotheses())
    assert ended[0, 0].tolist() == [1, 0, 0, 0, 0, 0]
    assert scores[0].exp().tolist() == pytest.approx([0.5, 0.0])
    assert beam.written[0, :, 0].tolist() == [2, 3]
    for _ in range(5):
        beam.step(logits_of([0.1, 0.1, 0.4, 0.4], [0.1, 0.1, 0.4, 0.4]))
        assert torch.equal(beam.get_hypotheses()[0][0, 0], ended[0, 0])
    assert beam.is_finished()
    rows = beam.get_hypotheses()[0][0]
    assert ((rows == 1).cumsum(1) > 1).sum() == 0, "one end a hypothesis"
    assert all(row.index(1) == 5 or not any(row[row.index(1) + 1 :]) for row in rows.tolist())


def test_a_sentence_is_done_once_the_beam_is_full_of_ends() -> None:
    beam = beam_of(1)
    beam.step(logits_of([0.1, 0.6, 0.2, 0.1]))
    done = beam.get_hypotheses()[1].clone()
    assert beam.is_finished()
    beam.length_penalty = 100.0  # whatever came later would look better now
    beam.step(logits_of([0.0, 1.0, 0.0, 0.0]))
    assert torch.equal(beam.get_hypotheses()[1], done)


def test_an_end_outside_the_beam_does_not_count() -> None:
    beam = beam_of(1)
    beam.step(logits_of([0.1, 0.3, 0.5, 0.1]))
    assert not beam.is_finished()
    assert beam.get_hypotheses()[1].item() == -torch.inf


def test_the_length_penalty_prefers_longer_texts() -> None:
    short_first: list[int] = []
    long_first: list[int] = []
    for penalty, found in ((0.0, short_first), (2.0, long_first)):
        beam = beam_of(2, length_penalty=penalty)
        beam.step(logits_of([0.0, 0.5, 0.5, 0.0], [0.0, 0.5, 0.5, 0.0]))
        beam.step(logits_of([0.0, 0.9, 0.05, 0.05], [0.0, 0.9, 0.05, 0.05]))
        found.extend(beam.get_hypotheses()[0][0, 0].tolist())
    assert short_first[0] == 1
    assert long_first[:2] == [2, 1]


@NAMES
def test_one_group_without_a_penalty_is_beam_search(name: str, tokenizer: Tokenizer) -> None:
    model = build_model(name, tokenizer)
    plain = run_search(model, lambda parts: BeamSearch(3, 4, **parts))
    diverse = run_search(model, lambda parts: DiverseBeamSearch([BeamSearch(3, 4, **parts)], diversity=0.0))
    for one, other in zip(plain.get_hypotheses(), diverse.get_hypotheses(), strict=True):
        assert torch.equal(one, other)


def test_groups_write_different_first_tokens_when_it_costs_enough(tokenizer: Tokenizer) -> None:
    model = build_model("transformer", tokenizer)
    for candidates in decode(model, beam=4, diverse_groups=4, diversity=1e4):
        assert len({tuple(row[:1]) for row in candidates.tokens}) == 4
    for candidates, plain in zip(
        decode(model, beam=4, diverse_groups=2, diversity=0.0), decode(model, beam=2), strict=True
    ):
        assert candidates.tokens == plain.tokens * 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.1, 0.2, 0.3, 0.4]),
        ({"temperature": 0.5}, [0.01 / 0.3, 0.04 / 0.3, 0.09 / 0.3, 0.16 / 0.3]),
        ({"top_k": 2}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_p": 0.69}, [0, 0, 3 / 7, 4 / 7]),
        ({"top_p": 0.71}, [0, 2 / 9, 3 / 9, 4 / 9]),
        ({"top_k": 3, "top_p": 0.5}, [0, 0, 3 / 7, 4 / 7]),
    ],
)
def test_tokens_are_drawn_by_their_chances(options: dict[str, Any], expected: list[float]) -> None:
    keys = make_key(1, torch.arange(4000)[:, None])
    sampling = Sampling(keys, limits=LIMITS, **options)
    logits = torch.tensor([0.9, 0.1, 0.2, 0.3, 0.4]).log().expand(4000, 1, 5).clone()
    tokens, parents = sampling.step(logits)
    assert parents is None
    counts = tokens.flatten().bincount(minlength=5).tolist()
    assert counts[0] == 0
    possible = [(count, 4000 * share) for count, share in zip(counts[1:], expected, strict=True) if share]
    assert sum(count for count, _ in possible) == 4000
    assert chisquare(*zip(*possible, strict=True)).pvalue > 1e-3


def test_samples_do_not_depend_on_how_many_there_are_but_on_seed_and_place(tokenizer: Tokenizer) -> None:
    model = build_model("transformer", tokenizer)
    few = decode(model, samples=2)
    assert [candidates.tokens for candidates in few] == [
        candidates.tokens[:2] for candidates in decode(model, samples=5)
    ]
    assert [candidates.tokens for candidates in few] != [
        candidates.tokens for candidates in decode(model, samples=2, seed=1)
    ]
    same = decode(model, [ROWS[0], ROWS[0]], samples=2)
    assert same[0].tokens != same[1].tokens


def test_a_prefix_is_kept_and_costs_nothing(tokenizer: Tokenizer) -> None:
    model = build_model("gru", tokenizer)
    ways: list[dict[str, Any]] = [{"beam": 3}, {"samples": 3}]
    for options in ways:
        made = model.generate(["7 april"], prefix="19", length_penalty=0.0, **options)
        assert all(text.startswith("19") for text in made.candidates[0])
        given = tokenizer.encode(["19"])[0]
        row = tokenizer.encode(["7 april"])[0]
        before = sum(next_scores(model, row, given[:i])[token].item() for i, token in enumerate(given))
        whole = model.likelihood(["7 april"] * 3, made.candidates[0])
        assert made.scores[0] == pytest.approx([total - before for total in whole], rel=1e-4)
    with pytest.raises(Problem, match="nothing to write"):
        model.generate(["7 april"], prefix="1" * 16)


def test_a_wished_length_is_kept_exactly(tokenizer: Tokenizer) -> None:
    model = build_model("transformer", tokenizer)
    ways: list[dict[str, Any]] = [{"beam": 3}, {"samples": 3}, {"beam": 2, "prefix": "19"}]
    for options, length in itertools.product(ways, (3, 16)):
        made = model.generate(["7 april", "12. mai 2001"], length=length, **options)
        texts = [text for candidates in made.candidates for text in candidates]
        assert {len(row) for row in tokenizer.encode(texts)} == {length}
    with pytest.raises(Problem, match="at most 16"):
        model.generate(["a"], length=17)
    with pytest.raises(Problem, match="at least 1"):
        model.generate(["a"], length=0)
    with pytest.raises(Problem, match="nothing to write"):
        model.generate(["a"], prefix="19", length=2)


def test_a_trace_shows_the_text_growing(tokenizer: Tokenizer) -> None:
    made = build_model("transformer", tokenizer).generate(["7 april"], trace=True, prefix="19")
    shown = [stop.text for stop in made.traces[0]]
    assert shown[0] == "19"
    assert shown[-1] == made.texts[0]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(shown))


def test_the_past_is_seen_beyond_a_block_of_positions(tokenizer: Tokenizer) -> None:
    model = build_model("transformer", tokenizer, max_target=40)
    forbidden = torch.cat([model.forbidden_tokens, torch.tensor([tokenizer.eos])])
    written = decode(model, ROWS[:1], beam=1, length=40)[0].tokens[0]
    for index in (20, 35, 39):
        scores = next_scores(model, ROWS[0], written[:index]).index_fill(0, forbidden, -torch.inf)
        assert int(scores.argmax()) == written[index]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"beam": 0}, "beam"),
        ({"beam": 5, "diverse_groups": 2}, "diverse_groups"),
        ({"samples": -1}, "samples"),
        ({"samples": 1, "temperature": 0.0}, "temperature"),
        ({"samples": 1, "temperature": math.nan}, "temperature"),
        ({"samples": 1, "top_p": 0.0}, "top_p"),
        ({"temperature": 0.7}, "samples"),
        ({"top_k": 3}, "samples"),
        ({"select": "best"}, "select"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(Problem, match=named):
        AutoregressiveGenerationConfig(**changes)


def test_a_flag_of_diffusion_is_refused_by_name(tokenizer: Tokenizer) -> None:
    with pytest.raises(Problem, match="no setting 'noise_beam'"):
        build_model("gru", tokenizer).generate(["a"], noise_beam=2)
