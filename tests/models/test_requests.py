"""Requests that are generated together: each gets what it gets alone, in as few passes as possible."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from noise2text.acceleration import cuda_graphs
from noise2text.acceleration.cuda_graphs import CudaGraphExecutor
from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.classifier_guidance import ClassifierGuidance
from noise2text.generation.decoder import SourceBatch
from noise2text.generation.executor import EagerExecutor
from noise2text.models import LengthPredictingModel, Model
from noise2text.models.output import GenerationOutput, TraceStep
from noise2text.models.registry import find_recipe
from noise2text.models.requests import GenerationRequest

from ..acceleration.test_cuda_graphs import Replayed
from ..conftest import Make, let_noise_decide, lively, shrunk

TEXTS = ["sunday, 7 april 1957", "", "12. mai 2001", "a", "lundi 3 mars 1980", "  ", "9 de abril"]
STEPS: dict[str, Any] = {"steps": 4, "stop_early": 0}


def request(texts: list[str], *, seed: int = 0, trace: bool = False, **overrides: Any) -> GenerationRequest:
    return GenerationRequest(texts, seed=seed, trace=trace, overrides=STEPS | overrides)


OTHER_STEPS: list[dict[str, Any]] = [
    {"steps": 6},
    {"steps": 6, "stop_early": 2, "sampling_noise_factor": 2.0},
    {"steps": 1},
    {"eta": 0.5, "length_beam": 1, "noise_beam": 3},
    {"solver": "multistep", "steps": 5},
    {"stop_when_sure": 0.2, "steps": 7},
]
"""Settings of the steps in which requests that share a batch may differ."""

REQUESTS = [
    request(TEXTS),
    request(TEXTS[:3], seed=5),
    request(TEXTS[2:5], seed=2**70 + 1),
    request(TEXTS[2:], length_beam=1, noise_beam=3, select="score"),
    request(TEXTS[:2], length=7, seed=1),
    request(TEXTS[3:5], prefix="1", suffix="2", utility="chrf"),
    request(TEXTS[4:], template="a___{2}b", trace=True),
    request(TEXTS[:1], select="weighted-mbr", seed=9),
    request(TEXTS[2:4], trace=True, noise_beam=1),
    request(TEXTS[:3], preprocess="sentences,copies", text_rules="de-en", clause_words=5),
    GenerationRequest(TEXTS[:1], seed=3, n=4, floor=9.0, overrides=STEPS),
    GenerationRequest(TEXTS[:2], indices=[7, 9], overrides=STEPS),
    *(request(TEXTS[:4], seed=1, **settings) for settings in OTHER_STEPS),
]


@pytest.fixture
def model(small: Make) -> LengthPredictingModel:
    """A small untrained model whose noise decides about the texts."""
    return let_noise_decide(small(length_beam=2, noise_beam=2))


def generate_alone(model: Model, each: GenerationRequest) -> GenerationOutput:
    return model.generate(
        each.texts,
        seed=each.seed,
        indices=each.indices,
        trace=each.trace,
        n=each.n,
        floor=each.floor,
        **each.overrides,
    )


def assert_same(output: GenerationOutput, alone: GenerationOutput) -> None:
    names = ("texts", "candidates", "lengths", "chosen", "drafts", "utilities", "alternatives", "truncated")
    for name in names:
        assert getattr(output, name) == getattr(alone, name), name
    assert output.scores == [pytest.approx(scores, abs=1e-4) for scores in alone.scores]
    for steps, expected in zip(output.traces, alone.traces, strict=True):
        assert [(each.time, each.tokens, each.noisy_tokens) for each in steps] == [
            (each.time, each.tokens, each.noisy_tokens) for each in expected
        ]


@pytest.mark.parametrize("batch", [3, 100])
def test_each_request_gets_what_it_gets_alone(model: Model, batch: int) -> None:
    outputs = model.generate_together(REQUESTS, batch=batch)
    alone = [generate_alone(model, each) for each in REQUESTS]
    for output, expected in zip(outputs, alone, strict=True):
        assert_same(output, expected)
    assert outputs[0].candidates[0] != model.generate(TEXTS, seed=1, **STEPS).candidates[0]  # noise decides


@pytest.fixture
def passes(model: LengthPredictingModel) -> list[int]:
    """The rows of each pass through the network."""
    passes: list[int] = []
    model.denoiser.register_forward_hook(lambda module, inputs, output: passes.append(len(inputs[0])))
    return passes


def test_a_step_of_all_requests_is_one_pass_through_the_network(
    model: LengthPredictingModel, passes: list[int]
) -> None:
    together = [each for each in REQUESTS if each.overrides.get("select") != "weighted-mbr"]
    model.generate_together(together, batch=100)
    assert len(passes) == max(each.overrides["steps"] for each in together)


def test_rows_that_have_taken_all_their_steps_leave_the_network(
    model: LengthPredictingModel, passes: list[int]
) -> None:
    requests = [request(TEXTS[:1], steps=4), request(TEXTS[:1], steps=2), request(TEXTS[:1], noise_beam=5)]
    model.generate_together(requests)
    assert passes == [4 + 4 + 10] * 2 + [4 + 10] * 2
    passes.clear()
    model.generate_together(requests[:2])  # with equally many candidates, which share their encodings
    assert passes == [8, 8, 4, 4]


@pytest.mark.parametrize("settings", OTHER_STEPS)
def test_a_trace_has_the_steps_of_its_own_request(
    model: LengthPredictingModel, settings: dict[str, Any]
) -> None:
    traced = request(TEXTS[:1], seed=1, trace=True, **settings)
    output, longest = model.generate_together([traced, request(TEXTS[2:], trace=True, steps=9)])
    assert_same(output, generate_alone(model, traced))
    assert len(longest.drafts[0][0]) == 9


def test_replayed_graphs_serve_requests_with_different_steps(
    model: LengthPredictingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [generate_alone(model, each) for each in REQUESTS]
    monkeypatch.setattr(cuda_graphs, "CudaGraph", Replayed)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    executor = CudaGraphExecutor()
    model.use_executor(executor)
    for _ in range(2):
        for output, expected in zip(model.generate_together(REQUESTS, batch=100), alone, strict=True):
            assert_same(output, expected)
    assert len([key for key in executor.graphs if key[0] == "sample"]) == 1  # type: ignore[index]


def test_a_captured_table_of_very_many_solvers_has_room_for_the_steps_before_capture(
    model: LengthPredictingModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_graphs, "CudaGraph", Replayed)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    executor = CudaGraphExecutor()
    model.use_executor(executor)
    few: dict[str, Any] = {"steps": 2, "length_beam": 1, "noise_beam": 1}
    requests = [request(TEXTS[:1], **few, eta=i / 200) for i in range(129)]
    outputs = model.generate_together(requests, batch=len(requests))
    assert_same(outputs[7], generate_alone(model, requests[7]))


def test_an_executor_may_pad_a_joint_batch(model: Model) -> None:
    """As CUDA graphs do, which round the rows up to a power of two and the lengths to a multiple of 4."""

    class Padding(EagerExecutor):
        def padded_shape(self, rows: int, length: int, max_length: int) -> tuple[int, int]:
            return 1 << (rows - 1).bit_length(), min(-(-length // 4) * 4, max(length, max_length))

    alone = [generate_alone(model, each) for each in REQUESTS]
    model.use_executor(Padding())
    for output, expected in zip(model.generate_together(REQUESTS), alone, strict=True):
        assert_same(output, expected)


@pytest.mark.parametrize(
    ("recipe", "first", "second"),
    [
        ("diffuseq", {"steps": 3, "noise_beam": 3}, {"steps": 3, "prefix": "a"}),
        ("diffuseq", {"steps": 3}, {"steps": 5, "eta": 0.5}),
        ("seqdiffuseq", {"steps": 8, "prior_rate": 0.5}, {"steps": 8, "prior_rate": 0.5, "noise_beam": 2}),
        ("seqdiffuseq", {"steps": 6}, {"steps": 8, "prior_rate": 0.5}),
        ("ar-diffusion", {"steps": 6}, {"steps": 8, "eta": 0.0, "sampling_noise_factor": 2.0}),
        ("difformer", {"steps": 3, "sampling_boundary_confidence": 0.5}, {"steps": 4}),
        ("difformer", {"steps": 3, "stop_early": 0, "clamp": True}, {"steps": 4, "clamp": True}),
        ("transformer", {"samples": 3}, {"samples": 3}),
        ("cmlm", {}, {"length_beam": 2}),
        ("difformer", {"strategy": "token-by-token", "steps": 2}, {"steps": 2}),
        ("copy", {}, {}),
    ],
)
def test_it_holds_for_every_family(
    tokenizer: Tokenizer, recipe: str, first: Mapping[str, Any], second: Mapping[str, Any]
) -> None:
    found = find_recipe(recipe)
    torch.manual_seed(0)
    model = lively(found.build(shrunk(found.preset("tiny")), tokenizer))
    requests = [
        GenerationRequest(TEXTS, seed=1, overrides=first),
        GenerationRequest(TEXTS[:3], seed=2, overrides=first),
        GenerationRequest(TEXTS[2:], seed=3, trace=True, overrides=second),
    ]
    for output, each in zip(model.generate_together(requests), requests, strict=True):
        assert_same(output, generate_alone(model, each))


def test_guided_requests_share_a_batch_whatever_their_class(
    model: LengthPredictingModel, passes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row follows the guide of its own request; a batch without guides goes without."""
    torch.manual_seed(0)
    weights = torch.randn(model.denoiser.embedding.dim, 3)

    def classify(z: torch.Tensor, timestep: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (z * mask[..., None]).sum(1) @ weights * (1 + timestep)

    def guide(config: Any) -> ClassifierGuidance:
        return ClassifierGuidance(classify, int(config.guide_class), lr=config.guide_rate)  # type: ignore[arg-type]

    monkeypatch.setattr(model, "load_classifier_guidance", guide)
    guided: dict[str, Any] = {"guide": "folder", "guide_rate": 2.0}
    requests = [
        request(TEXTS, **guided, guide_class="0"),
        request(TEXTS[:3], seed=1, **guided, guide_class="1", steps=6),
        request(TEXTS[:3], seed=1, **(guided | {"guide_rate": 0.5}), guide_class="2", noise_beam=3),
    ]
    outputs = model.generate_together(requests)
    assert len(passes) == 6
    for output, each in zip(outputs, requests, strict=True):
        assert_same(output, generate_alone(model, each))
    assert outputs[1].candidates != generate_alone(model, request(TEXTS[:3], seed=1, steps=6)).candidates


def test_requests_with_equal_guidance_weights_share_a_batch(
    model: LengthPredictingModel, passes: list[int]
) -> None:
    model.source_dropout = 0.1
    requests = [
        request(TEXTS, guidance_weight=9.0),
        request(TEXTS[:3], seed=1, guidance_weight=9.0, steps=6, eta=0.0),
        request(TEXTS[2:], guidance_weight=9.0, noise_beam=3, prefix="a", select="score"),
    ]
    for together in (requests, requests[:2]):
        passes.clear()
        outputs = model.generate_together(together)
        assert len(passes) == 6
        for output, each in zip(outputs, together, strict=True):
            assert_same(output, generate_alone(model, each))
    assert outputs[0].candidates != generate_alone(model, request(TEXTS)).candidates


def test_a_request_sees_the_steps_of_all_candidates_of_its_own_texts(model: Model) -> None:
    seen: list[Mapping[int, list[TraceStep]]] = []
    watched = GenerationRequest(TEXTS[:3], seed=4, on_trace_step=seen.append, trace=True, overrides=STEPS)
    outputs = model.generate_together([request(TEXTS), watched, request(TEXTS, noise_beam=3)])
    assert [sorted(steps) for steps in seen] == [[0, 2]] * STEPS["steps"]
    for position in (0, 2):
        shown = [[each.text for each in steps[position]] for steps in seen]
        assert list(map(list, zip(*shown, strict=True))) == outputs[1].drafts[position]
    assert_same(outputs[0], generate_alone(model, request(TEXTS)))


def test_seeds_that_choose_different_steps_cannot_share_a_batch(tokenizer: Tokenizer) -> None:
    found = find_recipe("seqdiffuseq")
    model = found.build(shrunk(found.preset("tiny")), tokenizer).eval()
    config = apply_overrides(model.generation_config, {"steps": 8, "prior_rate": 0.5}, origin="test")
    with pytest.raises(Problem, match="give all texts of a batch the same"):
        model.build_decoder(config).decode(SourceBatch([[5], [6]], [0, 1], seeds=[1, 2]))
