"""The requests and answers of the service: what the OpenAPI document describes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from noise2text.serving.result import TextResult

__all__ = [
    "ErrorAnswer",
    "GenerateAnswer",
    "GenerateRequest",
    "Language",
    "ModelAnswer",
    "SettingAnswer",
    "Status",
    "StreamRequest",
    "TranslateAnswer",
    "TranslateRequest",
]

Setting = bool | int | float | str | None


class _Settings(BaseModel):
    """What all requests for generation share."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = Field(None, description="name of the model; the first one if left out")
    n: Annotated[int, Field(ge=1)] | None = Field(
        None, description="number of candidates, rounded up to a multiple of the lengths that are tried"
    )
    steps: Annotated[int, Field(ge=1)] | None = Field(None, description="denoising steps")
    length: Annotated[int, Field(ge=1)] | None = Field(None, description="exact number of tokens")
    prefix: str | None = Field(None, description="text that every output begins with")
    suffix: str | None = Field(None, description="text that every output ends with")
    template: str | None = Field(None, description="fixed text with ___ where the model fills in")
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = Field(0, description="decides the noise")
    guide: str | None = Field(None, description="name of a classifier of the service")
    guide_class: str | None = Field(None, description="class that the classifier guides to")
    settings: dict[str, Setting] = Field(
        default_factory=dict, description="any other generation setting of the model; see GET /v1/models"
    )

    def named_settings(self) -> dict[str, Setting]:
        """All generation settings that the request gives; a field counts before an entry of `settings`."""
        fields = ("steps", "length", "prefix", "suffix", "template", "guide", "guide_class")
        own = {name: getattr(self, name) for name in fields}
        return self.settings | {name: value for name, value in own.items() if value is not None}


class GenerateRequest(_Settings):
    """Texts to generate from, and how."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"texts": ["Wo ist der Bahnhof?"]},
                {"texts": ["Wo ist der Bahnhof?"], "n": 6, "steps": 10, "seed": 1, "prefix": "Where"},
            ]
        }
    )

    texts: list[str] = Field(description="the sources", min_length=1)
    trace: bool = Field(False, description="whether to return the denoising steps")


class StreamRequest(_Settings):
    """One text to generate from, step by step."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "Wo ist der Bahnhof?", "steps": 10}]})

    text: str = Field(description="the source")


class GenerateAnswer(BaseModel):
    """The chosen texts, and the whole result of each: candidates, scores and steps."""

    model: str
    seed: int
    settings: dict[str, Any] = Field(description="all generation settings, defaults included")
    texts: list[str]
    results: list[TextResult]


class SettingAnswer(BaseModel):
    """A generation setting of a model."""

    name: str
    default: Setting
    help: str


class ModelAnswer(BaseModel):
    """A model of the service."""

    name: str
    recipe: str
    source: str | None = Field(description="code of the source language, if known")
    target: str | None = Field(description="code of the target language, if known")
    loaded: bool
    settings: list[SettingAnswer]


class TranslateRequest(BaseModel):
    """A request in the format of LibreTranslate; other fields of its clients are ignored."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"q": "Wo ist der Bahnhof?", "source": "de", "target": "en"}]}
    )

    q: str | list[str] = Field(description="the text, or several")
    source: str = Field(description="code of the source language, or auto")
    target: str = Field(description="code of the target language")
    format: str = Field("text", description="text, the only one")
    alternatives: int = Field(0, ge=0, description="other translations to return, at most")
    api_key: str | None = None

    @field_validator("alternatives", mode="before")
    @classmethod
    def _refuse_booleans(cls, value: object) -> object:
        """A form has only texts, so that 2 may come as "2"; true is no number anywhere."""
        if isinstance(value, bool):
            raise ValueError("give a number, not true or false")
        return value


class TranslateAnswer(BaseModel):
    """An answer in the format of LibreTranslate; lists if q was a list."""

    translatedText: str | list[str]  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: dict[str, Any] | list[dict[str, Any]] | None = None  # noqa: N815


class Language(BaseModel):
    """A language of the service, and those that it is translated to."""

    code: str
    name: str
    targets: list[str]


class Status(BaseModel):
    """How the service is."""

    status: str


class ErrorAnswer(BaseModel):
    """One sentence about what is wrong and what to do."""

    error: str
