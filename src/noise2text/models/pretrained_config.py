"""Configs of the models of the library transformers: pre-trained ones, and the same shapes from scratch."""

from __future__ import annotations

from dataclasses import dataclass

from noise2text.core.config import Config, option, section
from noise2text.core.errors import Problem
from noise2text.data.config import FolderTokenizerDataConfig
from noise2text.generation.config import AutoregressiveGenerationConfig
from noise2text.models.baseline_config import LabelSmoothingOptimConfig
from noise2text.nn.config import require_divisible_heads
from noise2text.training.config import RunConfig

__all__ = [
    "CausalConfig",
    "CausalModelConfig",
    "PretrainedConfig",
    "PretrainedModelConfig",
    "Seq2SeqConfig",
    "Seq2SeqModelConfig",
]


@dataclass(frozen=True)
class PretrainedModelConfig(Config):
    """Where the model comes from; its shape counts only from scratch, since a folder has its own."""

    from_folder: str = option("", "folder of the pre-trained model: config.json, tokenizer.json, safetensors")
    from_scratch: bool = option(False, "start from random weights in the shape below, without a folder")
    architecture: str = option("", "the library's configuration as JSON; training fills it in")
    model_dim: int = option(768, "d_model, from scratch", minimum=1)
    ffn_dim: int = option(3072, "d_ffn, from scratch", minimum=1)
    heads: int = option(12, "attention heads, from scratch", minimum=1)
    dropout: float = option(0.1, "dropout, from scratch", minimum=0, maximum=1)

    def __post_init__(self) -> None:
        require_divisible_heads(self)
        if self.from_scratch and self.from_folder:
            raise Problem(
                "A model starts from a folder or from scratch: set from_folder or from_scratch, not both."
            )


@dataclass(frozen=True)
class CausalModelConfig(PretrainedModelConfig):
    """GPT-2's base shape."""

    layers: int = option(12, "layers, from scratch")


@dataclass(frozen=True)
class Seq2SeqModelConfig(PretrainedModelConfig):
    """T5's base shape."""

    encoder_layers: int = option(12, "layers of the encoder, from scratch")
    decoder_layers: int = option(12, "layers of the decoder, from scratch")


_OPTIM = LabelSmoothingOptimConfig(
    steps=20_000, lr=5e-5, betas=(0.9, 0.999), lr_schedule="linear", warmup=500, label_smoothing=0.0
)


@dataclass(frozen=True)
class PretrainedConfig(Config):
    """Fine-tuning; no paper here gives these numbers."""

    data: FolderTokenizerDataConfig = section(
        FolderTokenizerDataConfig(tokenizer="folder"), "how texts become tokens"
    )
    model: PretrainedModelConfig = section(PretrainedModelConfig(), "the pre-trained network")
    optim: LabelSmoothingOptimConfig = section(_OPTIM, "the optimizer and the loss")
    generation: AutoregressiveGenerationConfig = section(
        AutoregressiveGenerationConfig(), "how the model generates"
    )
    run: RunConfig = section(RunConfig(validate_every=1_000), "seed, hardware, logging")


@dataclass(frozen=True)
class CausalConfig(PretrainedConfig):
    """A causal model such as GPT-2."""

    model: CausalModelConfig = section(CausalModelConfig(), "the pre-trained network")


@dataclass(frozen=True)
class Seq2SeqConfig(PretrainedConfig):
    """An encoder-decoder such as T5."""

    model: Seq2SeqModelConfig = section(Seq2SeqModelConfig(), "the pre-trained network")
    optim: LabelSmoothingOptimConfig = section(_OPTIM.replace(lr=1e-4), "the optimizer and the loss")
