"""The service over HTTP, with real clients: answers, errors, limits, keys, logs."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from noise2text.models import Model
from noise2text.models.requests import GenerationRequest
from noise2text.serving.limits import Limits

from .conftest import TEXTS, Gate, Serve, running, wait_until


@pytest.fixture
def client(make_service: Serve) -> Iterator[httpx.Client]:
    with running(make_service()) as (client, _):
        yield client


def generate(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/v1/generate", json=body)


def test_an_answer_has_what_the_model_generates(client: httpx.Client, model: Model) -> None:
    answer = generate(client, texts=TEXTS, n=4, seed=5, steps=3, prefix="a", trace=True).json()
    alone = model.generate(TEXTS, seed=5, steps=3, prefix="a", noise_beam=4, trace=True, n=4)
    settings, results = answer["settings"], answer["results"]
    assert answer["texts"] == alone.texts
    assert [[each["text"] for each in result["candidates"]] for result in results] == alone.candidates
    assert [result["chosen"] for result in results] == alone.chosen
    assert [result["alternatives"] for result in results] == alone.alternatives
    assert max(map(len, alone.alternatives)) > 1
    assert [[step["text"] for step in result["steps"]] for result in results] == [
        [step.text for step in steps] for steps in alone.traces
    ]
    assert (answer["model"], answer["seed"], settings["steps"], settings["eta"]) == ("de-en", 5, 3, 1.0)


def test_answers_do_not_depend_on_who_else_asks(make_service: Serve, gate: Gate, model: Model) -> None:
    """Many clients ask at once, with texts, seeds, steps and settings of their own."""
    requests = [
        {
            "texts": TEXTS[i % 5 : i % 5 + 1 + i % 3],
            "seed": i,
            "settings": {
                "noise_beam": 1 + i % 2,
                "prefix": "ab"[: i % 3],
                "steps": 3 + i % 4,
                "solver": "multistep" if i % 7 == 0 else "ddim",
            },
        }
        for i in range(40)
    ]
    service = make_service(gate=gate)
    with running(service) as (client, _), ThreadPoolExecutor(40) as threads, gate:
        answers = [threads.submit(generate, client, **request) for request in requests]
        wait_until(lambda: sum(service.pool.num_waiting().values()) > 40)
        gate.opened.set()
        for request, answer in zip(requests, answers, strict=True):
            alone = model.generate(request["texts"], seed=request["seed"], **request["settings"])  # type: ignore[arg-type]
            value = answer.result().json()
            assert value["texts"] == alone.texts
            assert [[each["text"] for each in result["candidates"]] for result in value["results"]] == (
                alone.candidates
            )
    assert len(gate.batches) <= 4  # 80 texts of which 32 go together, and what came first


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_answer_is_the_same_to_the_bit_alone_and_with_others(make_service: Serve, precision: str) -> None:
    """Scores included: the shipped model's sums of floats have the same order in every batch."""
    texts = ["Guten Morgen.", "Wo ist der Bahnhof?", "Ich habe zwei Brüder und eine Schwester.", "Nein!"]
    requests = [
        {"texts": [text], "seed": i, "n": 2, "steps": 2 + i % 2, "settings": {"eta": 0.5 * (i % 3)}}
        for i, text in enumerate(texts)
    ]
    service = make_service("de-en", precision=precision)
    gate = Gate(service.pool._load_model(service.pool.find(None).folder))
    service.pool._load_model = gate.load
    with running(service) as (client, _), ThreadPoolExecutor(5) as threads, gate:
        first = threads.submit(generate, client, texts=["Ja."])
        assert gate.entered.acquire(timeout=30)
        together = [threads.submit(generate, client, **request) for request in requests]
        wait_until(lambda: service.pool.num_waiting() == {"de-en": 4})
        gate.opened.set()
        answers = [answer.result().json() for answer in together]
        assert answers == [generate(client, **request).json() for request in requests]
        assert (first.result().status_code, len(gate.batches[1])) == (200, 4)


def test_models_and_their_settings_are_listed(client: httpx.Client, model: Model) -> None:
    (listed,) = client.get("/v1/models").json()
    assert (listed["name"], listed["recipe"], listed["source"], listed["target"]) == (
        "de-en",
        "difformer",
        "de",
        "en",
    )
    defaults = {each["name"]: each["default"] for each in listed["settings"]}
    assert defaults["steps"] == model.generation_config.steps
    assert all(each["help"] for each in listed["settings"])
    assert not listed["loaded"]
    generate(client, texts=["a"])
    assert client.get("/v1/models").json()[0]["loaded"]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"texts": ["a"], "settings": {"stepz": 1}}, 422, "did you mean steps"),
        ({"texts": ["a"], "settings": {"steps": "many"}}, 422, "a whole number"),
        ({"texts": ["a"], "stepz": 1}, 422, "stepz"),
        ({"texts": "a"}, 422, "texts"),
        ({"texts": []}, 422, "texts"),
        ({"texts": [1]}, 422, "texts.0"),
        ({"texts": ["\ud800"]}, 422, "UTF-8"),
        ({"texts": ["a"], "prefix": "\ud800"}, 422, "UTF-8"),
        ({}, 422, "texts"),
        ({"texts": ["a"] * 4}, 422, "1 to 3 texts"),
        ({"texts": ["a" * 21]}, 422, "21 characters"),
        ({"texts": ["a"], "n": 9}, 422, "at most 8 candidates"),
        ({"texts": ["a"], "steps": 13}, 422, "at most 12"),
        ({"texts": ["a"], "length": 17}, 422, "at most 16"),
        ({"texts": ["a"], "seed": 2**63}, 422, "seed"),
        ({"texts": ["a"], "guide": "/etc", "guide_class": "x"}, 422, "no classifier"),
        ({"texts": ["a"], "settings": {"guide": "/etc", "guide_class": "x"}}, 422, "no classifier"),
        ({"texts": ["a"], "model": "de-em"}, 404, "did you mean de-en"),
        ({"texts": ["a"], "template": "x" * 500}, 413, "500 bytes"),
    ],
)
def test_a_mistake_is_one_sentence(make_service: Serve, body: Any, status: int, sentence: str) -> None:
    limits = Limits(texts=3, characters=20, candidates=8, steps=12, body_bytes=500)
    with running(make_service(limits=limits)) as (client, _):
        answer = client.post(
            "/v1/generate", content=json.dumps(body), headers={"content-type": "application/json"}
        )
        assert answer.status_code == status
        assert list(answer.json()) == ["error"]
        assert sentence in answer.json()["error"]
        assert "Traceback" not in answer.text


def test_broken_json_and_unknown_pages_are_sentences(client: httpx.Client) -> None:
    for content in (b"{", b"\xff\xfe"):
        broken = client.post("/v1/generate", content=content, headers={"content-type": "application/json"})
        assert (broken.status_code, broken.json()) == (400, {"error": "The body is not valid JSON."})
    assert client.get("/nowhere").status_code == 404
    assert client.get("/v1/generate").status_code == 405
    for path in ("/docs", "/redoc"):  # FastAPI's pages, whose scripts come from elsewhere
        assert client.get(path).status_code == 404
    assert all("error" in client.get(path).json() for path in ("/nowhere", "/v1/generate"))


def test_a_body_of_unknown_size_is_limited_too(make_service: Serve) -> None:
    with running(make_service(limits=Limits(body_bytes=1000))) as (client, _):
        chunks = (b" " * 100 for _ in range(100))
        assert client.post("/v1/generate", content=chunks).status_code == 413


def test_a_bug_is_an_answer_without_a_stack_trace(
    make_service: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        def generate_together(self, requests: list[GenerationRequest], **options: Any) -> Any:
            raise KeyError(requests[0].texts[0])

    service = make_service()
    service.pool._load_model = lambda folder: Broken()  # type: ignore[assignment, return-value]
    with running(service) as (client, _), caplog.at_level(logging.INFO, logger="noise2text.serving"):
        answer = generate(client, texts=["my secret"])
    assert (answer.status_code, list(answer.json())) == (500, ["error"])
    assert answer.json()["error"].startswith("The generation failed")
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text + answer.text


def test_a_full_queue_answers_503_with_retry_after(make_service: Serve, gate: Gate) -> None:
    service = make_service(gate=gate, limits=Limits(queue=2))
    with running(service) as (client, _), ThreadPoolExecutor(2) as threads, gate:
        running_one = threads.submit(generate, client, texts=["a"])
        assert gate.entered.acquire(timeout=30)
        waiting = threads.submit(generate, client, texts=["b", "c"])
        wait_until(lambda: service.pool.num_waiting() == {"de-en": 2})
        refused = generate(client, texts=["d"])
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        gate.opened.set()
        assert [each.result().status_code for each in (running_one, waiting)] == [200, 200]


@pytest.mark.parametrize("path", ["/v1/generate", "/v1/generate/stream"])
def test_a_client_that_goes_away_frees_its_place(make_service: Serve, gate: Gate, path: str) -> None:
    service = make_service(gate=gate)
    body = {"text": "gone"} if path.endswith("stream") else {"texts": ["gone"]}
    with running(service) as (client, _), ThreadPoolExecutor(1) as threads, gate:
        first = threads.submit(generate, client, texts=["a"])
        assert gate.entered.acquire(timeout=30)
        with pytest.raises(httpx.TimeoutException):
            client.post(path, json=body, timeout=0.3)
        wait_until(lambda: service.pool.num_waiting() == {"de-en": 0})
        gate.opened.set()
        assert first.result().status_code == 200
    assert gate.batches == [["a"]]


def test_a_draining_service_finishes_what_it_accepted_and_refuses_the_rest(
    make_service: Serve, gate: Gate
) -> None:
    service = make_service(gate=gate)
    with running(service) as (client, server), ThreadPoolExecutor(2) as threads, gate:
        accepted = [threads.submit(generate, client, texts=["a"])]
        assert gate.entered.acquire(timeout=30)
        accepted.append(threads.submit(generate, client, texts=["b"]))
        wait_until(lambda: service.pool.num_waiting() == {"de-en": 1})
        assert client.get("/readyz").status_code == 200
        server.handle_exit(15, None)
        wait_until(lambda: service.pool.is_closed)
        for _ in range(5):  # as long as something is generated, new connections are answered
            time.sleep(0.1)
            assert httpx.get(f"{client.base_url}/readyz", trust_env=False).status_code == 503
        assert client.get("/healthz").status_code == 200
        refused = generate(client, texts=["c"])
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        gate.opened.set()
        assert [each.result().status_code for each in accepted] == [200, 200]


def test_keys_are_asked_for(make_service: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    service = make_service()
    service.keys = type(service.keys)(["key one", "two"])
    with running(service) as (client, _):
        for headers in ({}, {"authorization": "Bearer key"}, {"x-api-key": "key"}, {"authorization": "two"}):
            refused = client.post("/v1/generate", json={"texts": ["a"]}, headers=headers)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        for headers in ({"authorization": "Bearer key one"}, {"x-api-key": "two"}):
            assert client.post("/v1/generate", json={"texts": ["a"]}, headers=headers).status_code == 200
        assert client.get("/v1/models").status_code == 401
        assert client.get("/healthz").status_code == 200
        assert client.post("/translate", data={"q": "a", "source": "de", "target": "en"}).status_code == 403


def test_a_client_that_asks_too_often_waits(make_service: Serve) -> None:
    with running(make_service(rate_limit=2)) as (client, _):
        answers = [client.get("/v1/models") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 30


def test_every_key_has_a_rate_of_its_own(make_service: Serve) -> None:
    service = make_service(rate_limit=1)
    service.keys = type(service.keys)(["one", "two"])
    with running(service) as (client, _):
        asked = [client.get("/v1/models", headers={"x-api-key": key}) for key in ("one", "two", "one", "two")]
    assert [answer.status_code for answer in asked] == [200, 200, 429, 429]


def test_pages_of_other_origins_are_refused_unless_allowed(make_service: Serve) -> None:
    asked = {"origin": "https://a.example", "access-control-request-method": "POST"}
    with running(make_service()) as (client, _):
        assert "access-control-allow-origin" not in client.options("/v1/generate", headers=asked).headers
    with running(make_service(), allow_origins=["https://a.example"]) as (client, _):
        answer = client.options("/v1/generate", headers=asked)
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        other = client.options("/v1/generate", headers={**asked, "origin": "https://b.example"})
        assert "access-control-allow-origin" not in other.headers


@pytest.mark.parametrize("log_texts", [False, True])
def test_texts_are_logged_only_if_asked_for(
    make_service: Serve, caplog: pytest.LogCaptureFixture, log_texts: bool
) -> None:
    with (
        running(make_service(log_texts=log_texts)) as (client, _),
        caplog.at_level(logging.DEBUG),
    ):
        client.get("/v1/models?q=secret")
        client.get("/secret")
        generate(client, texts=["secret"], settings={"secret": 1})
        client.post("/translate", data={"q": "secret.", "source": "de", "target": "en"})
        generate(client, texts=["secret"])
    lines = [each.getMessage() for each in caplog.records if each.name.startswith(("noise2text", "uvicorn"))]
    assert sum("/v1/generate 200" in line for line in lines) == 1
    assert any("secret" in line for line in lines) == log_texts


def test_metrics_count_requests_batches_and_waiting_texts(client: httpx.Client) -> None:
    generate(client, texts=["a", "b"])
    generate(client, texts=["a"], steps=0)
    text = client.get("/metrics").text
    assert 'noise2text_requests_total{route="/v1/generate",status="200"} 1.0' in text
    assert 'noise2text_requests_total{route="/v1/generate",status="422"} 1.0' in text
    assert 'noise2text_batch_texts_sum{model="de-en"} 2.0' in text
    assert 'noise2text_waiting_texts{model="de-en"} 0.0' in text
