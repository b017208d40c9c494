"""Diffusion models: a denoiser, a schedule and a layout, and the decoder that the config names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.errors import Problem
from noise2text.data.layouts.base import Canvas, Layout
from noise2text.data.layouts.template import Template, make_template
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.classifier_free_guidance import ClassifierFreeDenoiser
from noise2text.diffusion.classifier_guidance import ClassifierGuidance
from noise2text.diffusion.parameterization import ParameterizedDenoiser, PredictMean
from noise2text.diffusion.schedules import Rescaled, Schedule
from noise2text.generation.autoregressive_diffusion import TokenByTokenDecoder, WordByWordDecoder
from noise2text.generation.config import (
    DiffusionGenerationConfig,
    LengthPredictingGenerationConfig,
)
from noise2text.generation.denoising_likelihood import NOISE_TIME, DenoisingLikelihood
from noise2text.generation.likelihood import batched_log_likelihoods
from noise2text.generation.parallel import ParallelDecoder
from noise2text.generation.selection import SELECTORS, Selector, build_mbr
from noise2text.generation.weighted_mbr import WeightedMBR
from noise2text.models.base import Model, device_guard, require_lists
from noise2text.nn.denoiser import ClampedDenoiser, Denoiser, EncoderOutput
from noise2text.nn.length_predictor import LENGTH_PROPOSALS, LengthPredictor
from noise2text.training.classifier import load_classifier

__all__ = ["DiffusionModel", "LengthPredictingModel"]


class DiffusionModel(Model):
    """An embedding-space diffusion model whose canvas always has the full length.

    Args:
        tokenizer: texts to tokens and back.
        layout: how pairs lie on the canvas.
        denoiser: the network.
        schedule: the noise schedule of generation.
        generation_config: the defaults of `generate`.
        max_source, max_target: the longest texts in tokens.
        writable_specials: the special tokens that are part of a target, such as its end.
        source_dropout: the share of training pairs without a source, for classifier-free guidance.

    >>> import noise2text
    >>> from noise2text.data.tokenizer import learn_characters
    >>> recipe = noise2text.list_recipes()["diffuseq"]
    >>> tokenizer = learn_characters(["0123456789 abcdefghijklmnopqrstuvwxyz"])
    >>> model = recipe.build(recipe.preset("tiny"), tokenizer)
    >>> isinstance(model, noise2text.DiffusionModel), isinstance(model.schedule, noise2text.Schedule)
    (True, True)
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        layout: Layout,
        denoiser: Denoiser,
        schedule: Schedule,
        generation_config: DiffusionGenerationConfig,
        max_source: int,
        max_target: int,
        writable_specials: Iterable[int] = (),
        source_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokenizer, self.layout, self.generation_config = tokenizer, layout, generation_config
        self.max_source, self.max_target = max_source, max_target
        self.denoiser, self.schedule, self.source_dropout = denoiser, schedule, source_dropout
        forbidden = torch.zeros(len(tokenizer), dtype=torch.bool)
        forbidden[sorted(tokenizer.special_tokens - set(writable_specials))] = True
        self.register_buffer("forbidden", forbidden, persistent=False)
        self.register_buffer("special", torch.tensor(sorted(tokenizer.special_tokens)), persistent=False)

    forbidden: torch.Tensor
    special: torch.Tensor

    @property
    def quantizable_module(self) -> nn.Module:
        return self.denoiser

    def resolve_precision(self, requested_precision: str) -> str:
        predicts_mean = isinstance(self.denoiser, ParameterizedDenoiser) and isinstance(
            self.denoiser.parameterization, PredictMean
        )
        return "float32" if predicts_mean and requested_precision == "auto" else requested_precision

    def propose_lengths(
        self, encoded: EncoderOutput, config: Any, template: Template
    ) -> tuple[Tensor, Tensor]:
        """The lengths to try for each sentence, and their log-probabilities."""
        return self.propose_single_length(encoded, self.max_target)

    def propose_single_length(self, encoded: EncoderOutput, length: int) -> tuple[Tensor, Tensor]:
        """One length for every sentence, with log-probability 0; on the host, which need not wait for it."""
        lengths = torch.full((len(encoded.padding), 1), length)
        return lengths, torch.zeros_like(lengths, dtype=torch.float)

    def build_decoder(self, config: Any) -> ParallelDecoder:
        """The decoder of `config.strategy`, with the parts of this model."""
        template = make_template(config, self.tokenizer, self.max_output_length(config))
        return _DECODERS[config.strategy](
            denoiser=self.wrap_denoiser(config),
            schedule=self.build_sampling_schedule(config),
            layout=self.layout,
            config=config,
            propose_lengths=partial(self.propose_lengths, config=config, template=template),
            num_timesteps=self.schedule.num_timesteps,
            forbidden=self.forbidden,
            special=self.special,
            max_source=self.max_source,
            max_length=self.max_target,
            template=template,
            runner=self.runner(),
            classifier_guidance=self.classifier_guidance(config),
            likelihood_scorer=self.likelihood_scorer(config),
        )

    def likelihood_scorer(self, config: Any) -> DenoisingLikelihood | None:
        """The likelihood that scores the candidates; None for the log-probabilities of the last step."""
        return None

    def wrap_denoiser(self, config: Any) -> Denoiser:
        """The denoiser with the wrappers that the config asks for."""
        denoiser = self.denoiser
        if config.guidance_weight:
            if not self.source_dropout:
                raise Problem(
                    "Guidance needs a model that was also trained without sources: train one with the "
                    "setting source_dropout above 0, or leave guidance_weight at 0."
                )
            denoiser = ClassifierFreeDenoiser(denoiser, self.layout, config.guidance_weight)
        return ClampedDenoiser(denoiser) if config.clamp else denoiser

    def classifier_guidance(self, config: DiffusionGenerationConfig) -> ClassifierGuidance | None:
        """Guidance to `config.guide_class` by the classifier in `config.guide`; None without one."""
        if not config.guide:
            return None
        folder = Path(config.guide)
        classifier, labels = load_classifier(folder, self.denoiser.embedding)
        if config.guide_class not in labels:
            raise Problem(
                f"The classifier in {folder} has no class {config.guide_class!r}; it has {', '.join(labels)}."
            )
        return ClassifierGuidance(
            classifier,
            labels.index(config.guide_class),
            steps=config.guide_steps,
            lr=config.guide_rate,
            fluency=config.fluency,
        )

    def build_sampling_schedule(self, config: Any) -> nn.Module:
        """The noise schedule of generation."""
        factor = config.sampling_noise_factor
        return self.schedule if factor == 1 else Rescaled(self.schedule, factor)

    def max_output_length(self, config: Any) -> int:
        """The longest target that can be generated, in tokens."""
        return self.max_target

    def build_selector(self, config: Any) -> Selector:
        return SELECTORS[config.select](config)


class LengthPredictingModel(DiffusionModel):
    """A diffusion model that predicts the length of the target first, as Difformer does.

    Args:
        tokenizer: texts to tokens and back.
        lengths: the network that predicts the length.
        generation_config: the defaults of `generate`.
        training_schedule: the noise schedule of training, if it is not that of generation.
        parts: the other arguments of `DiffusionModel`.

    >>> import noise2text
    >>> model = noise2text.load("de-en", device="cpu", precision="float32")
    >>> good, bad = model.likelihood(["Guten Morgen."] * 2, ["Good morning.", "Two brothers."])
    >>> good > bad
    True
    >>> model.generate(["Guten Morgen."], length=4).texts
    ['Good morning.']
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        lengths: LengthPredictor,
        generation_config: LengthPredictingGenerationConfig,
        training_schedule: nn.Module | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(tokenizer, generation_config=generation_config, **parts)
        self.lengths, self.training_schedule = lengths, training_schedule or self.schedule

    def likelihood(
        self, texts: Sequence[str], targets: Sequence[str], *, per_token: bool = False, batch: int = 64
    ) -> list[float]:
        """The denoising likelihood of each target, or its mean over the tokens.

        It is −∞ for a target that this model cannot generate. A text that is too long is truncated, as by
        `generate`.
        """
        require_lists("likelihood", texts, targets)
        self.ensure_eval()
        rows = self.tokenizer.encode(targets)
        with device_guard(self.device):
            found = batched_log_likelihoods(
                self._log_likelihood,
                self.layout,
                [row[: self.max_source] for row in self.tokenizer.encode(texts)],
                rows,
                min_length=1,
                max_length=self.max_target,
                batch=batch,
                device=self.device,
            )
        if not per_token:
            return found
        return [value / max(1, len(row)) for value, row in zip(found, rows, strict=True)]

    @torch.inference_mode()
    def _log_likelihood(self, canvas: Canvas) -> Tensor:
        """The denoising likelihood of the target of each row, (B,)."""
        encoded = self.denoiser.encode(canvas.source)
        tokens = DenoisingLikelihood(self.denoiser, self.training_schedule)(encoded, canvas)
        return tokens - self.lengths.nll(encoded, canvas.padding)[:, 0]

    def likelihood_scorer(self, config: LengthPredictingGenerationConfig) -> DenoisingLikelihood | None:
        if config.select != "weighted-mbr":
            return None
        return DenoisingLikelihood(self.denoiser, self.training_schedule, self.runner())

    def build_selector(self, config: LengthPredictingGenerationConfig) -> Selector:
        score_name = f"own,time:{NOISE_TIME}"
        if config.select != "weighted-mbr":
            return super().build_selector(config)
        return WeightedMBR(build_mbr(config), score_name)

    def max_output_length(self, config: LengthPredictingGenerationConfig) -> int:
        return config.length or self.max_target

    def propose_lengths(
        self, encoded: EncoderOutput, config: LengthPredictingGenerationConfig, template: Template
    ) -> tuple[Tensor, Tensor]:
        if config.length is None:
            if template.is_exact:
                return self.propose_single_length(encoded, template.min_length)
            return self._propose_likely_lengths(encoded, config)
        if config.length > self.max_target:
            raise Problem(
                f"The length must be at most {self.max_target} for this model, not {config.length}."
            )
        return self.propose_single_length(encoded, config.length)

    def _propose_likely_lengths(
        self, encoded: EncoderOutput, config: LengthPredictingGenerationConfig
    ) -> tuple[Tensor, Tensor]:
        """The lengths that the length predictor finds likely, and their log-probabilities."""

        def likely(encoded: EncoderOutput) -> tuple[Tensor, Tensor]:
            return self.lengths.propose(encoded, config.length_beam, LENGTH_PROPOSALS[config.lengths])

        weights = self.lengths.output_projection.weight.data_ptr()
        name = ("lengths", weights, config.length_beam, config.lengths)
        return self.runner().run(name, likely, encoded)


_DECODERS: dict[str, Callable[..., ParallelDecoder]] = {
    "parallel": ParallelDecoder,
    "token-by-token": TokenByTokenDecoder,
    "word-by-word": WordByWordDecoder,
}
