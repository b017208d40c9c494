"""The OpenAPI document describes what the service does: schemathesis sends what it allows, and more."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import checks

from noise2text.serving.app import build_app
from noise2text.serving.limits import Limits

from .conftest import Serve, running


def test_the_document_has_examples_and_errors(make_service: Serve) -> None:
    document = build_app(make_service()).openapi()
    operation = document["paths"]["/v1/generate"]["post"]
    assert set(operation["responses"]) >= {"200", "401", "404", "413", "422", "429", "503"}
    assert document["components"]["schemas"]["GenerateRequest"]["examples"]
    assert set(document["paths"]) == {
        "/v1/generate",
        "/v1/generate/stream",
        "/v1/models",
        "/translate",
        "/languages",
        "/health",
        "/healthz",
        "/readyz",
        "/metrics",
    }


CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", "/v1/generate"), ("POST", "/v1/generate/stream"), ("POST", "/translate")],
)
def test_every_answer_conforms_to_the_document(
    make_service: Serve, method: str, path: str, mode: schemathesis.GenerationMode
) -> None:
    with running(make_service(limits=Limits(steps=8, candidates=8))) as (client, _):
        schema = schemathesis.openapi.from_url(str(client.base_url.join("/openapi.json")))

        @settings(
            max_examples=25,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=schema[path][method].as_strategy(generation_mode=mode))
        def check(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS)

        check()
