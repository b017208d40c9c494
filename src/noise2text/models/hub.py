"""Models on the Hugging Face hub, by names such as "org/name": download, save for sharing, and upload.

Only the files of a model folder are fetched (JSON, safetensors, the tokenizer and the card), so nothing that
could run code. What was fetched once is in the cache of huggingface_hub and is used without a network.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from noise2text.core.arguments import require_new_folder_name
from noise2text.core.errors import Problem, abbreviate
from noise2text.core.files import exists
from noise2text.core.weights_file import read_weights
from noise2text.models.accelerate import is_quantized
from noise2text.models.base import Model
from noise2text.models.card import CARD_FILE, ModelFacts, make_card, update_head, write_card
from noise2text.models.folder import load_engine, save, settings_files
from noise2text.models.model_files import WEIGHTS_FILE, write_model_files

__all__ = ["HUB_FILES", "download_model", "is_hub_name", "push_model", "save_model"]

HUB_FILES = ["config.json", "generation_config.json", WEIGHTS_FILE, "tokenizer.json", CARD_FILE]
"""The files of a model that are fetched and uploaded."""

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_hub_name(model: str) -> bool:
    """Whether this can only be the name of a model on the hub: org/name, where no folder org is here."""
    return bool(_NAME.fullmatch(model)) and not exists(Path(model.partition("/")[0]))


def download_model(name: str, *, revision: str | None = None) -> Path:
    """The folder of a model of the hub, fetched unless the cache has it; `revision`: a branch or commit."""
    hub = _import_hub(f"There is no model folder {name} here. To fetch {name} from the Hugging Face hub")
    failed = f"There is no model folder {name} here, and the Hugging Face hub does not give {name}"
    with _explain_failures(hub, failed):
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=HUB_FILES))


def save_model(model: Model, folder: Path, *, card: Mapping[str, Any] | None = None) -> None:
    """Write a loaded model and its card to a folder; `card` adds to the YAML head of the card."""
    if card is not None and not isinstance(card, Mapping):
        raise Problem(f'card is a dict of fields, such as {{"license": "mit"}}, not {abbreviate(card)}.')
    facts = ModelFacts.of(model, folder.name)
    assert model.origin is not None  # else there are no facts
    source = model.origin.folder
    if load_engine(source) is not None:
        raise Problem(f"An exported model is more than its weights: copy its folder, {source}.")
    require_new_folder_name(folder)
    if folder.resolve() == source.resolve():
        raise Problem(f"The model was loaded from {folder}: save it to another folder.")
    written = (source / CARD_FILE).read_text("utf-8") if (source / CARD_FILE).exists() else make_card(facts)
    if is_quantized(model):  # a model becomes int8 when it is loaded; its folder has the weights
        texts = settings_files(model, recipe=model.origin.recipe, config=model.origin.config)
        write_model_files(folder, read_weights(source / WEIGHTS_FILE), texts)
    else:
        save(folder, model, recipe=model.origin.recipe, config=model.origin.config)
    write_card(folder, update_head(written, card or {}))


def push_model(
    model: Model,
    name: str,
    *,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
    message: str = "Upload a noise2text model",
    card: Mapping[str, Any] | None = None,
) -> str:
    """Upload a loaded model to the hub, to a new repository if there is none; returns its address."""
    hub = _import_hub("To upload a model to the Hugging Face hub")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Problem(f"A model on the hub has a name such as org/name, not {abbreviate(name)}.")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name.partition("/")[2]
        save_model(model, folder, card=card)
        with _explain_failures(hub, f"The Hugging Face hub did not take {name}"):
            address = hub.create_repo(name, private=private, token=token, exist_ok=True)
            hub.upload_folder(
                repo_id=name,
                folder_path=folder,
                revision=revision,
                token=token,
                commit_message=message,
                allow_patterns=HUB_FILES,
            )
    return str(address)


def _import_hub(purpose: str) -> ModuleType:
    try:
        import huggingface_hub
        import huggingface_hub.errors  # not loaded with the package
    except ImportError as error:
        raise Problem(f"{purpose}: pip install 'noise2text[hub]'.") from error
    return huggingface_hub


@contextmanager
def _explain_failures(hub: ModuleType, failed: str) -> Iterator[None]:
    """Context manager: an error of the hub or of the network becomes a Problem."""
    known = (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError, ValueError)
    try:
        yield
    except (*known, *_network_errors()) as error:
        lines = [line.strip(" .") for line in str(error).splitlines() if line.strip()]
        reason = "; ".join(lines[:2]) or type(error).__name__
        raise Problem(
            f"{failed} ({reason}): check the name, the network and, for private models, `hf auth login`."
        ) from error


def _network_errors() -> tuple[type[Exception], ...]:
    """What the client of huggingface_hub raises, since version 1; the one before it raises OSError."""
    try:
        from httpx import HTTPError
    except ImportError:
        return ()
    return (HTTPError,)
