"""What a configuration of transformers says is checked before the library acts on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noise2text.core.config import apply_overrides
from noise2text.core.errors import Problem
from noise2text.data.tokenizer import Tokenizer
from noise2text.models.huggingface import (
    CAUSAL_FAMILY,
    SEQ2SEQ_FAMILY,
    build_network,
    load_pretrained_weights,
)
from noise2text.models.registry import find_recipe

from ..folders import write_model_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model_folder("gpt2", tmp_path_factory.mktemp("strangers") / "gpt2")


def build(folder: Path, **fields: Any) -> Any:
    """The network of the folder's architecture, with some of its fields changed."""
    architecture = json.dumps(json.loads((folder / "config.json").read_text()) | fields)
    return build_text(folder, architecture)


def build_text(folder: Path, architecture: str) -> Any:
    changes = {"architecture": architecture, "max_source": 40, "max_target": 16}
    config = apply_overrides(find_recipe("pretrained-causal").preset(), changes, origin="test")
    return build_network(CAUSAL_FAMILY, config, Tokenizer.load(folder / "tokenizer.json"))


@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation", "experts_implementation"])
def test_no_kernel_of_the_hub_is_asked_for(folder: Path, name: str) -> None:
    network = build(folder, **{name: "somebody/kernel"})
    assert "somebody" not in network.model.config.to_json_string(use_diff=False)
    assert network.model.config._attn_implementation in ("sdpa", "eager")


def test_references_are_dropped_in_parts_of_a_configuration_too(folder: Path) -> None:
    hostile = {"attn_implementation": "somebody/kernel", "auto_map": {"AutoModel": "code.Model"}}
    network = build(folder, part={"inner": [hostile]}, auto_map=hostile["auto_map"])
    assert network.model.config.part == {"inner": [{}]}
    assert "code.Model" not in network.model.config.to_json_string(use_diff=False)


@pytest.mark.parametrize(
    "fields",
    [
        {"n_layer": 10**9},
        {"n_layer": "many"},
        {"n_layer": -1},
        {"n_head": 0},
        {"n_head": None},
        {"n_embd": -32},
        {"n_embd": 10**15},
        {"vocab_size": "80"},
        {"vocab_size": [80]},
        {"activation_function": "nothing"},
        {"activation_function": {"a": 1}},
        {"n_positions": {}},
        {"model_type": 7},
        {"model_type": "no such model"},
        {"layer_norm_epsilon": "x"},
        {"resid_pdrop": 7},
        {"pad_token_id": "x"},
    ],
)
def test_an_odd_value_is_refused_in_one_sentence(folder: Path, fields: dict[str, Any]) -> None:
    """Whether the library refuses the configuration or the network that it describes is its own choice."""
    refusal = "no configuration that transformers knows|transformers cannot build the gpt2"
    with pytest.raises(Problem, match=refusal) as problem:
        build(folder, **fields)
    assert "\n" not in str(problem.value)


@pytest.mark.parametrize("fields", [{"use_cache": True}, {"invented": {"deep": [1]}}, {"n_inner": None}])
def test_a_value_that_means_nothing_to_the_network_leaves_it_as_it_is(
    folder: Path, fields: dict[str, Any]
) -> None:
    plain, changed = build(folder).state_dict(), build(folder, **fields).state_dict()
    assert plain.keys() == changed.keys()
    assert all(plain[name].shape == changed[name].shape for name in plain)


def test_more_layers_than_any_model_has_are_refused_before_they_are_built(folder: Path) -> None:
    with pytest.raises(Problem, match="n_layer must be between 0 and 1,000"):
        build(folder, n_layer=1_001)


@pytest.mark.parametrize("text", ["[]", "7", "null", "{", "[" * 100_000, '"gpt2"'])
def test_what_is_no_configuration_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(Problem, match="no configuration that transformers knows"):
        build_text(folder, text)


@pytest.mark.parametrize(
    "index",
    [
        {"weight_map": {"a": "../other/model.safetensors"}},
        {"weight_map": {"a": "/etc/model.safetensors"}},
        {"weight_map": {"a": "model.bin"}},
        {"weight_map": {"a": 7}},
        {"weight_map": ["a"]},
        {},
        [],
    ],
)
def test_an_index_may_name_only_safetensors_of_its_folder(tmp_path: Path, index: Any) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    config = apply_overrides(
        find_recipe("pretrained-seq2seq").preset(), {"from_folder": str(tmp_path)}, origin="test"
    )
    with pytest.raises(Problem, match=r"not a safetensors file of its folder|not an index of weights"):
        load_pretrained_weights(SEQ2SEQ_FAMILY, config, None)
