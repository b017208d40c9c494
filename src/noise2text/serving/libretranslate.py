"""LibreTranslate's interface, so that its clients work unchanged: /translate, /languages and /health.

A model whose name is a pair of languages, such as de-en, translates between them. A text is split into
sentences, since most models were trained on single ones; what lies between sentences is kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from pydantic import ValidationError

from noise2text.core.errors import Problem
from noise2text.serving.generate_routes import ERRORS, get_service
from noise2text.serving.limits import CANDIDATE_FACTORS, count_candidates
from noise2text.serving.model_cache import ModelPool, ServedModel, name_language
from noise2text.serving.result import TextResult, make_results
from noise2text.serving.schema import ErrorAnswer, Language, Status, TranslateAnswer, TranslateRequest
from noise2text.serving.service import Refused

__all__ = ["router", "split_sentences"]

router = APIRouter()

_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\s*\n\s*")
_ERRORS: dict[int | str, dict[str, Any]] = {
    **{status: ERRORS[status] for status in (413, 429, 500, 503)},
    400: {
        "model": ErrorAnswer,
        "description": "a mistake in the request, or other languages",
    },
    403: {"model": ErrorAnswer, "description": "no valid API key"},
}
_SCHEMA = TranslateRequest.model_json_schema()


def split_sentences(text: str) -> tuple[list[str], list[str]]:
    """The sentences of a text, and what lies between them, one less."""
    between = [match[0] for match in _SENTENCE_END.finditer(text)]
    return _SENTENCE_END.split(text), between


def find_translator(pool: ModelPool, source: str, target: str) -> ServedModel:
    """The model that translates from source (or from any language, for auto) to target."""
    for model in pool.models.values():
        if model.languages and model.languages[1] == target and source in (model.languages[0], "auto"):
            return model
    raise Refused(400, f"{source} to {target} is not supported; GET /languages lists what is.")


async def read_translate_request(request: Request) -> TranslateRequest:
    """The request of a JSON or a form body."""
    body = await request.body()
    try:
        if request.headers.get("content-type", "").startswith("application/json"):
            return TranslateRequest.model_validate_json(body)
        form = parse_qs(body.decode("utf-8", errors="replace"), keep_blank_values=True)
        fields: dict[str, Any] = {name: values[0] for name, values in form.items()}
        return TranslateRequest.model_validate(
            fields | ({"q": form["q"]} if len(form.get("q", [])) > 1 else {})
        )
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "body"
        raise Refused(400, f"The request is not valid: {place}: {first['msg']}.") from None
    except ValueError:
        raise Refused(400, "The form has too many fields: send q, source and target.") from None


@router.post(
    "/translate",
    responses=_ERRORS,
    response_model_exclude_none=True,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _SCHEMA},
                "application/x-www-form-urlencoded": {"schema": _SCHEMA},
            },
        }
    },
    summary="Translate, as LibreTranslate does",
)
async def translate(request: Request) -> TranslateAnswer:
    """The translation of each text, and as many alternatives as candidates of the model differ."""
    service, body = get_service(request), await read_translate_request(request)
    service.authorize(request, body.api_key, status=403)
    if body.format != "text":
        raise Refused(400, "The only format is text: remove the markup and send format=text.")
    model = find_translator(service.pool, body.source, body.target)
    texts = [body.q] if isinstance(body.q, str) else body.q
    split = [split_sentences(text) for text in texts]
    config = model.generation_config
    # Named as they are, so that no more candidates are drawn, which would change the translation.
    own_beams = {name: getattr(config, name) for name in CANDIDATE_FACTORS if hasattr(config, name)}
    try:
        generation = service.prepare(
            model.name,
            [each for sentences, _ in split for each in sentences],
            own_beams,
            alternatives=count_candidates(config) if body.alternatives else 1,
        )
    except Problem as problem:
        raise Refused(400, str(problem)) from None
    service.submit(generation)
    output = await service.wait(generation, request)
    results = iter(make_results(generation.job.texts, output))
    versions = [
        _join([next(results) for _ in sentences], between, body.alternatives) for sentences, between in split
    ]
    return _make_answer(body, model, versions)


def _make_answer(
    body: TranslateRequest, model: ServedModel, versions: Sequence[Sequence[str]]
) -> TranslateAnswer:
    """The answer, with lists if the request has a list; a version is the translation or an alternative."""
    is_list = not isinstance(body.q, str)
    others: Any = [list(each[1:]) for each in versions]
    # Nothing is detected: the only language that the model reads is assumed, with no confidence.
    detected: Any = [{"language": (model.languages or ("",))[0], "confidence": 0.0} for _ in versions]
    return TranslateAnswer(
        translatedText=[each[0] for each in versions] if is_list else versions[0][0],
        alternatives=None if not body.alternatives else others if is_list else others[0],
        detectedLanguage=None if body.source != "auto" else detected if is_list else detected[0],
    )


def _join(results: Sequence[TextResult], between: Sequence[str], alternatives: int) -> list[str]:
    """The translation of a text and its alternatives, each joined of one candidate per sentence."""
    ranked = [result.alternatives or [result.text] for result in results]
    count = min(alternatives + 1, max(map(len, ranked)))
    versions = []
    for number in range(count):
        own = [each[min(number, len(each) - 1)] for each in ranked]
        versions.append("".join(part for pair in zip(own, [*between, ""], strict=True) for part in pair))
    return versions


@router.get("/languages", summary="The languages, as LibreTranslate lists them")
async def languages(request: Request) -> list[Language]:
    """The languages of the models, and the targets of each; a language that is only a target has none."""
    targets: dict[str, list[str]] = {}
    for model in get_service(request).pool.models.values():
        if model.languages:
            source, target = model.languages
            targets.setdefault(source, []).append(target)
            targets.setdefault(target, [])
    return [
        Language(code=code, name=name_language(code) or code, targets=own) for code, own in targets.items()
    ]


@router.get("/health", summary="Whether the service runs, as LibreTranslate says it")
async def health() -> Status:
    """Always ok."""
    return Status(status="ok")
