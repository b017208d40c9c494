"""Model folders: config.json, model.safetensors, tokenizer.json and generation_config.json.

They hold all that a trained model needs, and nothing that runs code when it is loaded. The files are written
together, and their checksums verified, by `model_files.py`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from noise2text.core.arguments import parse_path, require_instance, require_new_folder_name
from noise2text.core.config import apply_overrides
from noise2text.core.devices import find_device, find_dtype
from noise2text.core.errors import Problem, abbreviate, find_closest
from noise2text.core.files import exists
from noise2text.core.json_files import read_json_object, to_json
from noise2text.core.version import __version__
from noise2text.core.weights_file import WeightsFile
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.accelerate import missing_acceleration
from noise2text.models.base import Model, ModelOrigin
from noise2text.models.exported import check_device, load_onnx_network
from noise2text.models.limits import build_within_limits
from noise2text.models.model_files import (
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    open_model_files,
    write_model_files,
)
from noise2text.models.registry import RENAMED_RECIPES, Recipe, find_recipe, list_recipes
from noise2text.models.shipped import find_model_folder, list_shipped_models
from noise2text.training.checkpoint import find_checkpoint

if TYPE_CHECKING:
    from noise2text.acceleration.onnx_runtime import OnnxRuntimeConfig

__all__ = [
    "FORMAT",
    "WEIGHTS_FILE",
    "describe_config",
    "load",
    "load_config",
    "load_engine",
    "rename_settings",
    "save",
    "settings_files",
]

FORMAT = 2
"""The format of config.json."""

RENAMED_SETTINGS = {"data.normalise": "normalize", "generation.prepare": "preprocess"}
"""Settings that were saved under another name, and their names today."""

RENAMED_VALUES = {("model.network", "published"): "released"}
"""Values that were saved under another name, and their names today."""


def save(
    folder: str | Path, model: Model, *, recipe: str, config: Any, engine: OnnxRuntimeConfig | None = None
) -> None:
    """Write a model to a folder, from which `load` reads it.

    Args:
        folder: the folder to write; the files in it are replaced together.
        model: the model.
        recipe: the name of the recipe that built it.
        config: the config that it was built with.
        engine: what runs the network of an exported model; its graphs are already in the folder.

    >>> import tempfile, noise2text
    >>> from pathlib import Path
    >>> from noise2text.data.tokenizer import learn_characters
    >>> recipe = noise2text.list_recipes()["difformer"]
    >>> config = recipe.preset("tiny").replace(noise_factor=2.0)
    >>> model = recipe.build(config, learn_characters(["0123456789 abcdefghijklmnopqrstuvwxyz"]))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     noise2text.save(Path(folder), model, recipe="difformer", config=config)
    ...     sorted(path.name for path in Path(folder).iterdir())
    ['config.json', 'generation_config.json', 'model.safetensors', 'tokenizer.json']
    """
    folder = parse_path(folder, where="save")
    require_instance(model, Model, where="save", example="one that load or train returned")
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise Problem(f"save takes the config that the model was built with, not {abbreviate(config)}.")
    if recipe not in tuple(RENAMED_RECIPES):  # which convert knows
        find_recipe(recipe)  # without it, nothing could load the folder
    require_new_folder_name(folder)
    write_model_files(
        folder, _weights(model), settings_files(model, recipe=recipe, config=config, engine=engine)
    )


def settings_files(
    model: Model, *, recipe: str, config: Any, engine: OnnxRuntimeConfig | None = None
) -> dict[str, bytes]:
    """The contents of all files of a model folder but the weights, by name."""
    contents = describe_config(recipe, config, len(model.tokenizer))
    if engine is not None:
        contents["engine"] = dataclasses.asdict(engine)
    return {
        CONFIG_FILE: to_json(contents),
        GENERATION_FILE: to_json(dataclasses.asdict(model.generation_config)),
        TOKENIZER_FILE: model.tokenizer.to_json().encode(),
    }


def load(
    folder: str | Path,
    *,
    revision: str | None = None,
    device: str | torch.device | None = None,
    precision: str = "auto",
) -> Model:
    """The trained model in a folder, or the one of this name, ready to generate.

    Args:
        folder: a model folder, which is also the folder of a training run, the name of a shipped model, or
            that of a model on the Hugging Face hub, "org/name".
        revision: the branch, tag or commit of a model on the hub; by default its newest.
        device: cpu, cuda or cuda:1; by default a GPU if there is one. An exported model runs on the CPU.
        precision: float32, bfloat16, int8, or auto: bfloat16 on a GPU; on a CPU int8 where that is faster and
            later sampling steps correct its errors, else float32. An exported model has its own.

    Returns:
        A `Model` of the recipe that the folder names.

    >>> import noise2text
    >>> model = noise2text.load("de-en", device="cpu", precision="float32")
    >>> model.generate(["Ich habe zwei Brüder."]).texts
    ['I have two brothers.']
    """
    folder = parse_path(folder, where="load")
    find_dtype(precision, find_device(device))  # refuse a mistake before anything is read
    folder = find_model_folder(folder, revision=revision)
    _require_folder(folder)
    with open_model_files(folder) as files:
        contents = files.parse(CONFIG_FILE)
        recipe, config = _parse_config(folder, contents, files.parse(GENERATION_FILE))
        engine = _parse_engine(contents, folder / CONFIG_FILE)
        target_device = (
            check_device(engine, device=device, precision=precision) if engine else find_device(device)
        )
        tokenizer = Tokenizer.from_json(files.texts[TOKENIZER_FILE], folder / TOKENIZER_FILE)
        if len(tokenizer) != contents.get("vocabulary"):
            raise Problem(
                f"{folder / TOKENIZER_FILE} has {len(tokenizer)} tokens, but the model "
                f"{abbreviate(contents.get('vocabulary'))}; were they written by the same run?"
            )
        files.require_unchanged()
        model = build_within_limits(recipe, config, tokenizer, files)
        if engine:
            load_onnx_network(model, folder, engine)
        _load_weights(model, files.weights)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    model.origin = ModelOrigin(recipe.name, config, folder, num_parameters)
    return model.move_to(target_device, "float32" if engine else precision).eval()


def load_engine(folder: Path) -> OnnxRuntimeConfig | None:
    """What runs the network of an exported model; none if the folder's weights do."""
    path = find_model_folder(folder) / CONFIG_FILE
    return _parse_engine(_read_json(path), path)


def _parse_engine(contents: Mapping[str, Any], path: Path) -> OnnxRuntimeConfig | None:
    value = contents.get("engine")
    if value is None:
        return None
    try:
        from noise2text.acceleration.onnx_runtime import OnnxRuntimeConfig
    except ImportError as error:
        raise missing_acceleration("An exported model") from error
    return OnnxRuntimeConfig.of(value, path)


def rename_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The saved config with today's names of its settings and their values."""
    return {
        section: dict(_rename_setting(section, *setting) for setting in values.items())
        if isinstance(values, dict)
        else values
        for section, values in config.items()
    }


def _rename_setting(section: str, name: str, value: Any) -> tuple[str, Any]:
    if (section, name) == ("run", "tensorboard"):
        return "loggers", "tensorboard" if value else ""
    full = f"{section}.{name}"
    if isinstance(value, str):
        value = RENAMED_VALUES.get((full, value), value)
    return RENAMED_SETTINGS.get(full, name), value


def load_config(folder: Path) -> tuple[Recipe, Any]:
    """The recipe and the config of the model in a folder."""
    folder = find_model_folder(folder)
    _require_folder(folder)
    return _parse_config(folder, _read_json(folder / CONFIG_FILE), _read_json(folder / GENERATION_FILE))


def _require_folder(folder: Path) -> None:
    """Raise a Problem if there is no folder, or one of a run that has no model yet."""
    if not (exists(folder) and folder.is_dir()):
        names, address = list_shipped_models(), re.search(r"huggingface\.co/([^/]+/[^/]+)", str(folder))
        if address:
            raise Problem(f"A model on the hub is named, not given by its address: write {address[1]}.")
        if exists(folder):
            raise Problem(f"{folder} is no model folder: name the folder of a model, or {', '.join(names)}.")
        closest = find_closest(str(folder).lower(), names)
        if closest is not None:
            raise Problem(f"There is no model folder {folder}; did you mean {closest}?")
        raise Problem(
            f"There is no model folder {folder}; train one with `noise2text train`, or name one that comes "
            f"with the package: {', '.join(names)}."
        )
    checkpoint = find_checkpoint(folder)
    if checkpoint and not (folder / CONFIG_FILE).exists():
        raise Problem(
            f"The run in {folder} has not been validated yet; its newest checkpoint is {checkpoint}."
        )


def _parse_config(
    folder: Path, contents: Mapping[str, Any], generation: Mapping[str, Any]
) -> tuple[Recipe, Any]:
    """The recipe and the config from the contents of config.json and generation_config.json."""
    path, name = folder / CONFIG_FILE, str(contents.get("recipe"))
    if contents.get("format") == 1 or name in RENAMED_RECIPES:
        raise Problem(
            f"The model in {folder} was written by an older version: `noise2text convert {folder} NEW` "
            f"writes it in today's format."
        )
    if contents.get("format") != FORMAT or not isinstance(contents.get("config"), dict):
        raise Problem(
            f"{path} is not a noise2text configuration of format {FORMAT}; was it written by another program?"
        )
    recipe = list_recipes().get(name)
    if recipe is None:
        raise Problem(
            f"The model in {folder} needs the recipe {abbreviate(name)}, which is unknown here: install the "
            f"package that has it, or call noise2text.register first."
        )
    config = apply_overrides(recipe.preset(), rename_settings(contents["config"]), origin=str(path))
    origin, renamed = str(folder / GENERATION_FILE), rename_settings({"generation": generation})
    return recipe, dataclasses.replace(
        config, generation=apply_overrides(config.generation, renamed["generation"], origin=origin)
    )


def describe_config(recipe: str, config: Any, vocabulary: int) -> dict[str, Any]:
    """The contents of config.json; generation settings are in a file of their own."""
    sections = {name: value for name, value in dataclasses.asdict(config).items() if name != "generation"}
    return {
        "format": FORMAT,
        "noise2text": __version__,
        "recipe": recipe,
        "config": sections,
        "vocabulary": vocabulary,
    }


def _weights(model: Model) -> dict[str, Tensor]:
    """The tensors of a model, each under its first name only: parts may share one."""
    tensor_names = {name for name, _ in model.named_parameters()} | {
        name for name, _ in model.named_buffers()
    }
    return {name: tensor for name, tensor in model.state_dict().items() if name in tensor_names}


def _load_weights(model: Model, weights: WeightsFile) -> None:
    wanted = {name: tensor.shape for name, tensor in _weights(model).items()}
    if wanted != {name: shape for name, (_, shape) in weights.specs.items()}:
        raise Problem(f"{weights.path} does not fit its config.json; were they written by the same run?")
    tensors = weights.read()
    for name, tensor in _weights(model).items():
        if tensor.is_floating_point() != tensors[name].is_floating_point():
            raise Problem(
                f"{weights.path} holds values of type {tensors[name].dtype} in {name}; copy it again."
            )
    model.load_state_dict(tensors, strict=False)


def _read_json(path: Path) -> dict[str, Any]:
    return read_json_object(path, missing="the folder is not a complete model")
