"""What the fuzzer attacks: each target takes bytes, and works or raises a Problem with a short message."""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file, save_file

from noise2text.core.command_line import parse_assignments, parse_options
from noise2text.core.config import apply_overrides
from noise2text.core.config_files import read_config, to_yaml
from noise2text.data.corpus import (
    Pair,
    read_alternatives,
    read_candidates,
    read_labeled,
    read_pairs,
    read_sources,
)
from noise2text.data.layouts.template import parse_template
from noise2text.data.token_store import TokenStore, prepare
from noise2text.data.tokenizer import Tokenizer, learn_bpe, learn_characters
from noise2text.models.folder import load, save
from noise2text.models.registry import find_recipe
from noise2text.preprocessing.preprocessor import PREPROCESSING_STEPS, Preprocessor
from noise2text.preprocessing.text_rules import load_text_rules
from noise2text.training.checkpoint import read_progress

__all__ = ["TARGETS", "Target"]

SMALL = {
    "model_dim": 16,
    "ffn_dim": 16,
    "heads": 2,
    "embedding_dim": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
}
WORDS = ["7 may 1957", "12 april", "the 3rd of june, 2001"]

TEXTS = [
    "Am 7. Mai 1957 um 14:30 Uhr zahlte Dr. Müller 1.234,56 € an info@example.org. Warum, weiß niemand!",
    'DAS IST z. B. EIN SATZ, der weitergeht, weil er lang ist, und dann noch länger wird; "so" ist es. 😀',
    "ein kurzer satz ohne punkt",
]


@dataclass(frozen=True)
class Target:
    """A parser of untrusted bytes, and well-formed inputs from which mutations start."""

    run: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    share: float = 1.0  # of the cases that other targets get: less for a slow one, more for a fast one


@functools.cache
def _place() -> Path:
    """A folder for the files of this process, in memory where Linux offers it: up to ten times as fast."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="noise2text-fuzz-", dir=memory if memory.is_dir() else None))


@functools.cache
def _tokenizer() -> Tokenizer:
    return learn_characters(WORDS)


def _config() -> Any:
    return find_recipe("difformer").preset("tiny").replace(SMALL | {"noise_factor": 2.0, "max_source": 16})


@functools.cache
def _model() -> Path:
    """A small model folder without checksums, so that mutations are not refused by them alone."""
    folder, config = _place() / "model", _config()
    save(folder, find_recipe("difformer").build(config, _tokenizer()), recipe="difformer", config=config)
    save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors")
    return folder


@functools.cache
def _store() -> Path:
    """A small prepared corpus without checksums."""
    folder = _place() / "store"
    prepare([Pair(word, word) for word in WORDS], _tokenizer(), folder, max_source=30, max_target=30)
    metadata = json.loads((folder / "prepared.json").read_text())
    del metadata["checksums"]
    (folder / "prepared.json").write_text(json.dumps(metadata))
    return folder


def _write(name: str, data: bytes) -> Path:
    path = _place() / name
    path.write_bytes(data)
    return path


def _read_yaml(data: bytes) -> None:
    path = _write("c.yaml", data)
    apply_overrides(_config(), read_config(path), origin="c.yaml")


def _read_assignments(data: bytes) -> None:
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    apply_overrides(_config(), parse_assignments(lines), origin="--set")


def _read_options(data: bytes) -> None:
    words = data.decode("utf-8", "surrogateescape").split("\n")
    apply_overrides(_config().generation, parse_options(words), origin="generate")


def _read_corpus(name: str, data: bytes) -> None:
    path = str(_write(name, data))
    for read in (
        lambda: read_pairs(path),
        lambda: read_pairs(path, skip_bad=True),
        lambda: read_sources(path),
        lambda: iter(read_candidates(path) or []),
        lambda: iter(read_alternatives(path) or []),
        lambda: iter(read_labeled(path)),
    ):
        yield_all(read)


def yield_all(read: Callable[[], Iterator[Any]]) -> None:
    """Read at most 1,000 rows; a Problem of one reader must not hide faults of the next one."""
    from noise2text.core.errors import Problem

    try:
        for _ in itertools.islice(read(), 1_000):
            pass
    except Problem as problem:
        require_readable(problem)


def require_readable(problem: Exception) -> None:
    """A message says something, and nothing that a terminal would obey."""
    assert str(problem).strip(), "a message is empty"
    assert str(problem).replace("\n", "").isprintable(), f"control characters in {str(problem)!r}"


def _load_model(name: str, data: bytes) -> None:
    """Load the model folder in which one file has these contents."""
    whole = (_model() / name).read_bytes()
    try:
        (_model() / name).write_bytes(data)
        load(_model(), device="cpu", precision="float32")
    finally:
        (_model() / name).write_bytes(whole)


def _load_tokenizer(data: bytes) -> None:
    tokenizer = Tokenizer.from_json(data, Path("tokenizer.json"))
    tokenizer.decode(tokenizer.encode([*WORDS, "", "ß ☃"]))


def _load_store(name: str, data: bytes) -> None:
    whole = (_store() / name).read_bytes()
    try:
        (_store() / name).write_bytes(data)
        store = TokenStore.load(_store(), tokenizer=_tokenizer())
        store.get_pairs(np.arange(len(store)))
    finally:
        (_store() / name).write_bytes(whole)


def _parse_template(data: bytes) -> None:
    parse_template(data.decode("utf-8", "surrogateescape"), _tokenizer())


def _preprocess_text(data: bytes) -> None:
    """Sentences, clauses, case, punctuation, numbers and names of a text, and its output restored."""
    preprocessed = _preprocessor()(data.decode("utf-8", "replace"))
    for segment in preprocessed.segments:
        segment.restore(segment.source)


@functools.cache
def _preprocessor() -> Preprocessor:
    steps, rules = frozenset(PREPROCESSING_STEPS), load_text_rules("de-en")
    return Preprocessor(steps, rules, learn_characters(TEXTS), max_source=40, clause_words=8)


def _read_parallel(data: bytes) -> None:
    """Two files with parallel lines, which the first form feed separates."""
    source, _, target = data.partition(b"\f")
    paths = f"{_write('a.de', source)},{_write('a.en', target)}"
    yield_all(lambda: read_pairs(paths))
    yield_all(lambda: read_pairs(paths, skip_bad=True))


def _read_fields(data: bytes) -> None:
    """Names of fields after the name of a file."""
    fields = data.decode("utf-8", "surrogateescape")
    for path in (_write("b.jsonl", _json_lines()[0]), _write("b.csv", b"de;en;id\na;b;1\n")):
        yield_all(functools.partial(read_pairs, f"{path}[{fields}]"))
        yield_all(functools.partial(read_sources, f"{path}[{fields}]"))


def _read_progress(data: bytes) -> None:
    _write("training.json", data)
    read_progress(_place())


def _build_architecture(data: bytes) -> None:
    """A model folder of transformers, whose configuration is in our config.json."""
    from noise2text.models.huggingface import CAUSAL_FAMILY, build_network
    from noise2text.models.pretrained_config import CausalConfig

    text = data.decode("utf-8", "replace")
    build_network(
        CAUSAL_FAMILY, CausalConfig().replace(architecture=text, max_source=8, max_target=8), _tokenizer()
    )


def _gpt2() -> list[bytes]:
    shape = {
        "model_type": "gpt2",
        "vocab_size": 64,
        "n_positions": 64,
        "n_embd": 8,
        "n_layer": 1,
        "n_head": 2,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    return [json.dumps(shape).encode()]


def _parquet() -> list[bytes]:
    import pyarrow
    import pyarrow.parquet

    path = _place() / "seed.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"src": WORDS, "trg": WORDS}), path)
    return [path.read_bytes()]


def _json_lines() -> list[bytes]:
    rows = [{"src": word, "trg": word, "refs": [word], "label": "a", "candidates": [word]} for word in WORDS]
    return [
        "".join(json.dumps(row) + "\n" for row in rows).encode(),
        b'{"translation": {"de": "a", "en": "b"}}\n',
    ]


def _corpus(name: str, *seeds: bytes) -> Target:
    return Target(functools.partial(_read_corpus, name), lambda: list(seeds))


def _file_of(
    folder: Callable[[], Path], run: Callable[[str, bytes], None], name: str, *, share: float = 1.0
) -> Target:
    return Target(functools.partial(run, name), lambda: [(folder() / name).read_bytes()], share)


TARGETS: dict[str, Target] = {
    "yaml": Target(
        _read_yaml,
        lambda: [to_yaml(_config()).encode(), b"optim: {lr: 1e-3}\nmodel.heads: 2\na: &b [*b]\n"],
        share=0.5,
    ),
    "set": Target(
        _read_assignments, lambda: [b"lr=1e-3\noptim.steps=1_000\nbetas=0.9,0.98\nnoise_factor=none"]
    ),
    "options": Target(_read_options, lambda: [b"--steps\n10\n--length-beam=3\n--template\na ___{3}"]),
    "jsonl": Target(functools.partial(_read_corpus, "a.jsonl"), _json_lines),
    "json": _corpus("a.json", json.dumps([{"src": word, "trg": word} for word in WORDS]).encode()),
    "csv": _corpus("a.csv", b'src,trg\n"a, b",c\n"d\n""e""",f\n'),
    "tsv": _corpus("a.tsv", b"src\ttrg\na\tb\nc\td\n", "ä\tb\nc\tß\n".encode("utf-16")),
    "text": _corpus("a.txt", b"a b c\n\nd e\n", b"\xef\xbb\xbfa\r\nb\r\n"),
    "parallel": Target(_read_parallel, lambda: [b"a b\nc\n\fd\ne f\n", "ä\r\nß\r\n\fb\nc\n".encode()]),
    "fields": Target(_read_fields, lambda: [b"src,trg", b"de,en", b"1,2"]),
    "gzip": _corpus("a.tsv.gz", gzip.compress(b"a\tb\n", mtime=0)),
    "parquet": Target(functools.partial(_read_corpus, "a.parquet"), _parquet),
    "config.json": _file_of(_model, _load_model, "config.json", share=0.5),
    "generation_config.json": _file_of(_model, _load_model, "generation_config.json", share=0.5),
    "model.safetensors": _file_of(_model, _load_model, "model.safetensors", share=0.5),
    "model tokenizer.json": _file_of(_model, _load_model, "tokenizer.json", share=0.5),
    "tokenizer.json": Target(
        _load_tokenizer,
        lambda: [_tokenizer().to_json().encode(), learn_bpe(WORDS, size=300).to_json().encode()],
        share=2,
    ),
    "architecture": Target(_build_architecture, _gpt2, share=0.1),
    "prepared.json": _file_of(_store, _load_store, "prepared.json", share=2),
    "index.npy": _file_of(_store, _load_store, "index.npy"),
    "tokens.bin": _file_of(_store, _load_store, "tokens.bin"),
    "template": Target(_parse_template, lambda: [b"7 ___ 19___{2}", b"___"], share=2),
    "text to preprocess": Target(_preprocess_text, lambda: [text.encode() for text in TEXTS]),
    "training.json": Target(
        _read_progress, lambda: [b'{"step": 3, "best": [[0.5, 1.0, 3]], "unlogged": {}}'], share=2
    ),
}
"""All targets by name."""


def remove_files() -> None:
    """Remove the files of this process."""
    shutil.rmtree(_place(), ignore_errors=True)
