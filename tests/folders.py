"""Folders of small untrained models, as the transformers library writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import decoders, models, processors

_LIBRARY: Any = transformers
CHARACTERS = sorted(set("abcdefghijklmnopqrstuvwxyz áéíóúäöüûç,.-0123456789"))

SPECIALS: dict[str, list[str]] = {
    "gpt2": ["<|endoftext|>"],
    "t5": ["<pad>", "</s>", "<unk>", "<extra_id_0>"],
    "bart": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "marian": ["</s>", "<unk>", "<pad>"],
}
TEMPLATES = {"t5": "$A </s>", "bart": "<s> $A </s>", "marian": "$A </s>"}
SEQ2SEQ_FAMILIES = ["t5", "bart", "marian"]
FAMILIES = ["gpt2", *SEQ2SEQ_FAMILIES]


def hugging_face_tokenizer(family: str) -> tokenizers.Tokenizer:
    """A token a character, with the special tokens and the frame of a family."""
    vocabulary = {token: number for number, token in enumerate([*SPECIALS[family], *CHARACTERS])}
    unknown = {} if family == "gpt2" else {"unk_token": "<unk>"}
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], **unknown))
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(SPECIALS[family])
    if family in TEMPLATES:
        special_tokens = [(token, vocabulary[token]) for token in SPECIALS[family]]
        inner.post_processor = processors.TemplateProcessing(
            single=TEMPLATES[family], special_tokens=special_tokens
        )
    return inner


def small_config(family: str, vocabulary: dict[str, int]) -> Any:
    """A small shape; T5's has more tokens than its tokenizer, as the published ones have."""
    size, library = len(vocabulary), _LIBRARY
    if family == "gpt2":
        return library.GPT2Config(
            vocab_size=size, n_positions=96, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
        )
    if family == "t5":
        return library.T5Config(
            vocab_size=size + 5,
            d_model=32,
            d_kv=16,
            d_ff=64,
            num_layers=2,
            num_heads=2,
            decoder_start_token_id=0,
            pad_token_id=0,
            eos_token_id=1,
        )
    start = {"bart": "</s>", "marian": "<pad>"}[family]
    kinds = {"bart": library.BartConfig, "marian": library.MarianConfig}
    return kinds[family](
        vocab_size=size,
        max_position_embeddings=64,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        pad_token_id=vocabulary["<pad>"],
        bos_token_id=vocabulary.get("<s>", 0),
        eos_token_id=vocabulary["</s>"],
        decoder_start_token_id=vocabulary[start],
        forced_eos_token_id=None,
    )


def write_model_folder(family: str, folder: Path) -> Path:
    """A folder with config.json, tokenizer.json and model.safetensors; the weights are large, and random."""
    inner = hugging_face_tokenizer(family)
    kind = transformers.AutoModelForCausalLM if family == "gpt2" else transformers.AutoModelForSeq2SeqLM
    torch.manual_seed(0)
    model = kind.from_config(small_config(family, inner.get_vocab()))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.3)
    model.save_pretrained(folder)
    inner.save(str(folder / "tokenizer.json"))
    return folder
