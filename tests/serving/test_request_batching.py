"""The scheduler: answers are those of a request alone, batches are shared, places are freed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.models import Model
from noise2text.models.requests import GenerationRequest
from noise2text.serving.request_batching import Job, ModelWorker, QueueFull, WorkerClosed

from .conftest import TEXTS, Gate


def make_job(
    model: Model, texts: Sequence[str], *, seed: int = 0, trace: bool = False, **settings: Any
) -> Job:
    config = apply_overrides(model.generation_config, settings, origin="test")
    return Job(texts, settings, config, seed=seed, trace=trace)


@pytest.fixture
def worker(gate: Gate) -> ModelWorker:
    return ModelWorker(gate.load, max_queue=8, max_batch=6)


def occupy(worker: ModelWorker, gate: Gate, model: Model) -> Job:
    """A job that waits at the gate, so that the next ones wait in the queue."""
    job = make_job(model, ["b"])
    worker.submit(job)
    assert gate.entered.acquire(timeout=30)
    return job


def test_answers_equal_those_of_the_request_alone(gate: Gate, worker: ModelWorker, model: Model) -> None:
    occupy(worker, gate, model)
    jobs = [
        make_job(model, TEXTS[:1]),
        make_job(model, TEXTS[1:3], trace=True),
        make_job(model, TEXTS[3:4], seed=1),
        make_job(model, TEXTS[:1], noise_beam=3, prefix="a"),
        make_job(model, TEXTS[5:7], seed=2, select="score", length=4),
        make_job(model, TEXTS[2:3], seed=3, steps=9, eta=0.0, trace=True),
    ]
    for job in jobs:
        worker.submit(job)
    gate.opened.set()
    for job in jobs:
        alone = model.generate(job.texts, seed=job.seed, trace=job.trace, **job.settings)
        output = job.future.result(30)
        assert output.texts == alone.texts
        assert output.candidates == alone.candidates
        assert output.chosen == alone.chosen
        assert output.scores == [pytest.approx(scores, abs=1e-5) for scores in alone.scores]
        assert [len(steps) for steps in output.traces] == [len(steps) for steps in alone.traces]


def test_the_same_text_in_two_requests_gets_the_same_noise(
    gate: Gate, worker: ModelWorker, model: Model
) -> None:
    occupy(worker, gate, model)
    first, second, other = (
        make_job(model, [TEXTS[0]]),
        make_job(model, [TEXTS[0], TEXTS[0]]),
        make_job(model, [TEXTS[0]], seed=7),
    )
    for job in (first, second, other):
        worker.submit(job)
    gate.opened.set()
    mine, both = first.future.result(30).candidates[0], second.future.result(30).candidates
    assert both[0] == mine
    assert both[1] != mine  # the index in the request is part of the key
    assert other.future.result(30).candidates[0] != mine


def test_jobs_with_the_same_network_share_a_batch_and_others_wait_for_theirs(
    gate: Gate, worker: ModelWorker, model: Model
) -> None:
    occupy(worker, gate, model)
    for job in (
        make_job(model, ["1"], steps=3, eta=0.0),
        make_job(model, ["2"], clamp=True),
        make_job(model, ["3", "4"], seed=9, noise_beam=1, prefix="x", trace=True),
        make_job(model, ["5"], clamp=True, select="score", preprocess="sentences", text_rules="de-en"),
    ):
        worker.submit(job)
    gate.opened.set()
    worker.close()
    worker.join()
    assert gate.batches == [["b"], ["1", "3", "4"], ["2", "5"]]


def test_a_batch_holds_as_many_texts_as_it_may(gate: Gate, worker: ModelWorker, model: Model) -> None:
    occupy(worker, gate, model)
    for texts in (["1", "2", "3", "4"], ["5", "6", "7"], ["8"]):
        worker.submit(make_job(model, texts))
    gate.opened.set()
    worker.close()
    worker.join()
    assert gate.batches == [["b"], ["1", "2", "3", "4", "8"], ["5", "6", "7"]]


def test_a_full_queue_refuses_and_a_canceled_job_frees_its_place(
    gate: Gate, worker: ModelWorker, model: Model
) -> None:
    occupy(worker, gate, model)
    waiting = make_job(model, ["x"] * 8)
    worker.submit(waiting)
    late = make_job(model, ["y"])
    with pytest.raises(QueueFull):
        worker.submit(late)
    assert waiting.future.cancel()
    assert worker.num_waiting == 0
    worker.submit(late)
    gate.opened.set()
    assert len(late.future.result(30).texts) == 1
    assert ["x"] * 8 not in gate.batches


def test_a_closed_worker_finishes_what_it_accepted(gate: Gate, worker: ModelWorker, model: Model) -> None:
    jobs = [occupy(worker, gate, model), make_job(model, ["x"], seed=3)]
    worker.submit(jobs[1])
    worker.close()
    with pytest.raises(WorkerClosed):
        worker.submit(make_job(model, ["y"]))
    gate.opened.set()
    worker.join()
    assert all(job.future.done() for job in jobs)


def test_a_job_that_fails_does_not_spoil_its_batch(model: Model) -> None:
    class Picky(Gate):
        def generate_together(self, requests: Sequence[GenerationRequest], **options: Any) -> Any:
            outputs = super().generate_together(requests, **options)
            if any("bad" in request.texts for request in requests):
                raise Problem("This text is bad.")
            return outputs

    gate = Picky(model)
    worker = ModelWorker(gate.load, max_queue=8, max_batch=6)
    occupy(worker, gate, model)
    good, bad = make_job(model, ["good"]), make_job(model, ["bad"])
    worker.submit(good)
    worker.submit(bad)
    gate.opened.set()
    assert good.future.result(30).texts == model.generate(["good"]).texts
    with pytest.raises(Problem, match="bad"):
        bad.future.result(30)


def test_a_model_that_cannot_be_loaded_is_everybodys_problem(model: Model) -> None:
    def refuse() -> Model:
        raise Problem("The weights are missing.")

    worker = ModelWorker(refuse, max_queue=8, max_batch=6)
    for _ in range(2):
        with pytest.raises(Problem, match="missing"):
            worker.submit(make_job(model, ["x"])).result(30)
