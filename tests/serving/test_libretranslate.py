"""LibreTranslate's interface, asked by its own client and by hand."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.error import HTTPError

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI

from noise2text.models import Model
from noise2text.serving.access import ApiKeys
from noise2text.serving.libretranslate import split_sentences

from .conftest import Serve, running


@pytest.fixture
def client(make_service: Serve) -> Iterator[httpx.Client]:
    with running(make_service()) as (client, _):
        yield client


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_the_real_client_translates_and_lists_languages(client: httpx.Client, model: Model) -> None:
    api = LibreTranslateAPI(str(client.base_url))
    assert api.translate("7 april & mai", "de", "en") == model.generate(["7 april & mai"]).texts[0]
    assert api.languages() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]
    with pytest.raises(HTTPError, match="400"):
        api.translate("x", "en", "fr")


def test_the_real_client_sends_its_key(make_service: Serve) -> None:
    service = make_service()
    service.keys = ApiKeys(["open sesame"])
    with running(service) as (client, _):
        assert LibreTranslateAPI(str(client.base_url), "open sesame").translate("a", "de", "en")
        with pytest.raises(HTTPError, match="403"):
            LibreTranslateAPI(str(client.base_url), "sesame").translate("a", "de", "en")


def test_json_takes_a_list_and_gives_alternatives(client: httpx.Client, model: Model) -> None:
    body = {"q": ["7 april", "mai"], "source": "de", "target": "en", "alternatives": 1, "format": "text"}
    answer = client.post("/translate", json=body).json()
    alone = model.generate(["7 april", "mai"], noise_beam=model.generation_config.noise_beam, n=2)
    assert answer["translatedText"] == alone.texts == model.generate(["7 april", "mai"]).texts
    assert answer["alternatives"] == [each[1:] for each in alone.alternatives]
    assert any(answer["alternatives"])


def test_sentences_are_translated_one_by_one_and_joined(client: httpx.Client, model: Model) -> None:
    body = {"q": "7 april.  mai!\n\njuni", "source": "de", "target": "en"}
    first, second, third = model.generate(["7 april.", "mai!", "juni"]).texts
    assert client.post("/translate", json=body).json() == {"translatedText": f"{first}  {second}\n\n{third}"}


def test_splitting_loses_nothing() -> None:
    for text in ("", "\n", "a", "a. b", " a.\n\n b?  c ", "1.5 km. x", "a\n\n\nb\n"):
        sentences, between = split_sentences(text)
        assert "".join(a + b for a, b in zip(sentences, [*between, ""], strict=True)) == text
    assert split_sentences("1.5 km. x")[0] == ["1.5 km.", "x"]


def test_auto_says_which_language_is_assumed(client: httpx.Client) -> None:
    answer = client.post("/translate", json={"q": "a", "source": "auto", "target": "en"}).json()
    assert answer["detectedLanguage"] == {"language": "de", "confidence": 0.0}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({"source": "de", "target": "en"}, "q: "),
        ({"q": "a", "target": "en"}, "source: "),
        ({"q": "a", "source": "de", "target": "fr"}, "not supported"),
        ({"q": "a", "source": "de", "target": "en", "format": "html"}, "format"),
        ({"q": "a", "source": "de", "target": "en", "alternatives": "many"}, "alternatives"),
        ({"q": "a" * 2001, "source": "de", "target": "en"}, "2001 characters"),
    ],
)
@pytest.mark.parametrize("kind", ["json", "data"])
def test_a_mistake_is_400_with_a_sentence(
    client: httpx.Client, body: dict[str, str], sentence: str, kind: str
) -> None:
    answer = client.post("/translate", json=body) if kind == "json" else client.post("/translate", data=body)
    assert answer.status_code == 400
    assert list(answer.json()) == ["error"]
    assert sentence in answer.json()["error"]


def test_true_is_no_number_of_alternatives(client: httpx.Client) -> None:
    answer = client.post("/translate", json={"q": "a", "source": "de", "target": "en", "alternatives": True})
    assert (answer.status_code, "alternatives" in answer.json()["error"]) == (400, True)


def test_a_list_without_texts_is_a_mistake(client: httpx.Client) -> None:
    answer = client.post("/translate", json={"q": [], "source": "de", "target": "en"})
    assert (answer.status_code, list(answer.json())) == (400, ["error"])


def test_health_is_ok(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "ok"}
