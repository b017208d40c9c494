"""Diffusion models: a denoiser, a schedule and a layout, and the decoder that the config names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from noise2text.core.arguments import parse_flag, parse_whole_number
from noise2text.core.config import apply_overrides
from noise2text.core.devices import device_guard
from noise2text.core.errors import Problem
from noise2text.core.version import __version__
from noise2text.data.layouts.base import Canvas, Layout
from noise2text.data.layouts.template import Template, make_template
from noise2text.data.tokenizer import Tokenizer
from noise2text.diffusion.classifier_free_guidance import ClassifierFreeDenoiser
from noise2text.diffusion.classifier_guidance import ClassifierGuidance
from noise2text.diffusion.parameterization import ParameterizedDenoiser, PredictMean
from noise2text.diffusion.schedules import Rescaled, Schedule
from noise2text.diffusion.solvers import strided_times
from noise2text.diffusion.variational_bound import VariationalBound
from noise2text.generation.autoregressive_diffusion import TokenByTokenDecoder, WordByWordDecoder
from noise2text.generation.config import (
    DiffusionGenerationConfig,
    LengthPredictingGenerationConfig,
)
from noise2text.generation.denoising_likelihood import DenoisingLikelihood
from noise2text.generation.parallel import ParallelDecoder
from noise2text.generation.reranking import batched_log_likelihoods
from noise2text.generation.rounding import Rounding
from noise2text.models.base import Model, make_forbidden_mask, require_lists
from noise2text.models.diffusion_bound import CorpusBound, LengthNll
from noise2text.models.likelihood_bound import LikelihoodBound
from noise2text.nn.denoiser import ClampedDenoiser, Denoiser, EncoderOutput
from noise2text.nn.length_predictor import LENGTH_PROPOSALS, LengthPredictor
from noise2text.training.classifier import load_classifier

__all__ = ["DiffusionModel", "LengthPredictingModel"]


class DiffusionModel(Model):
    """An embedding-space diffusion model. It predicts no lengths: a text has at most `max_target` tokens.

    `LengthPredictingModel` extends it.

    Args:
        tokenizer: texts to tokens and back.
        layout: how pairs lie on the canvas.
        denoiser: the network.
        schedule: the noise schedule of generation.
        generation_config: the defaults of `generate`.
        max_source, max_target: the longest texts in tokens.
        allowed_special_tokens: the special tokens that are part of a target, such as its end.
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
        allowed_special_tokens: Iterable[int] = (),
        source_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokenizer, self.layout, self.generation_config = tokenizer, layout, generation_config
        self.max_source, self.max_target = max_source, max_target
        self.denoiser, self.schedule, self.source_dropout = denoiser, schedule, source_dropout
        forbidden_mask = make_forbidden_mask(tokenizer, allowed=allowed_special_tokens)
        self.register_buffer("forbidden_mask", forbidden_mask, persistent=False)
        special_tokens = torch.tensor(sorted(tokenizer.special_tokens - {tokenizer.bos}))
        self.register_buffer("special_tokens", special_tokens, persistent=False)

    forbidden_mask: torch.Tensor
    special_tokens: torch.Tensor

    @property
    def quantizable_module(self) -> nn.Module:
        return self.denoiser

    def resolve_precision(self, requested_precision: str) -> str:
        predicts_mean = isinstance(self.denoiser, ParameterizedDenoiser) and isinstance(
            self.denoiser.parameterization, PredictMean
        )
        return "float32" if predicts_mean and requested_precision == "auto" else requested_precision

    def propose_lengths(
        self, encoded: EncoderOutput, config: Any, template: Template | None
    ) -> tuple[Tensor, Tensor]:
        """The lengths to try for each sentence, and their log-probabilities."""
        return self.propose_single_length(encoded, self.max_target)

    def propose_single_length(self, encoded: EncoderOutput, length: int) -> tuple[Tensor, Tensor]:
        """One length for every sentence, with log-probability 0; on the host, which need not wait for it."""
        lengths = torch.full((len(encoded.padding), 1), length)
        return lengths, torch.zeros_like(lengths, dtype=torch.float)

    def build_decoder(self, config: Any) -> ParallelDecoder:
        """The decoder of `config.strategy`, with the parts of this model."""
        template = make_template(config, self.tokenizer, self.max_target)
        schedule = self.build_sampling_schedule(config)
        denoiser = self.wrap_denoiser(config, schedule)
        return _DECODERS[config.strategy](
            denoiser=denoiser,
            schedule=schedule,
            times=strided_times(
                config.steps, num_timesteps=self.schedule.num_timesteps, stop_early=config.stop_early
            ),
            layout=self.layout,
            config=config,
            propose_lengths=partial(self.propose_lengths, config=config, template=template),
            rounding=Rounding(denoiser, self.forbidden_mask, self.special_tokens),
            max_source=self.max_source,
            max_length=self.max_target,
            template=template,
            executor=self.executor(),
            classifier_guidance=self.load_classifier_guidance(config) if config.guide else None,
            likelihood_scorer=self.build_likelihood_scorer(config),
        )

    def likelihood_bound(
        self,
        texts: Sequence[str],
        targets: Sequence[str],
        *,
        samples: int = 32,
        steps: int | None = None,
        seed: int = 0,
        batch: int = 32,
        **overrides: Any,
    ) -> LikelihoodBound:
        """The variational bound of the chain that ancestral sampling draws from, with no self-conditioning.

        Guidance and clamping are those of generation. So is the noise, except in models that predict lengths:
        they know the noise of training, at which the network is calibrated. `sampling_noise_factor` sets
        another.
        """
        require_lists("likelihood_bound", texts, targets)
        parse = partial(parse_whole_number, where="likelihood_bound")
        samples, seed, batch = parse(samples, "samples"), parse(seed, "seed"), parse(batch, "batch")
        steps = None if steps is None else parse(steps, "steps")
        if min(samples, batch, 1 if steps is None else steps) < 1:
            raise Problem("The arguments samples, steps and batch of likelihood_bound must be at least 1.")
        self.eval()
        config = apply_overrides(self.generation_config, overrides, origin="likelihood_bound")
        steps = steps or self.schedule.num_timesteps
        schedule = self.build_bound_schedule(config, overrides)
        corpus = CorpusBound(
            VariationalBound(
                self.wrap_denoiser(config, schedule),
                schedule,
                strided_times(steps, num_timesteps=self.schedule.num_timesteps),
                samples,
            ),
            self.layout,
            self.length_nll,
            device=self.device,
            seed=seed,
        )
        sources = [row[: self.max_source] for row in self.tokenizer.encode(texts)]
        with device_guard(self.device):
            found = corpus.measure(
                sources, self.tokenizer.encode(targets), max_target=self.max_target, batch=batch
            )
        evaluated = f"steps:{steps}|samples:{min(samples, max(1, steps - 1))}|seed:{seed}"
        factor = f"{config.sampling_noise_factor:g}" if "sampling_noise_factor" in overrides else "default"
        noise = f"noise-factor:{factor}|self-conditioning:off"
        return corpus.summarize(
            found, signature=f"likelihood|variational-bound|{evaluated}|{noise}|noise2text:{__version__}"
        )

    def build_bound_schedule(self, config: Any, overrides: Mapping[str, Any]) -> Schedule:
        """The noise levels of the chain whose likelihood is bounded."""
        return self.build_sampling_schedule(config)

    @property
    def length_nll(self) -> LengthNll | None:
        """−log p of the targets' lengths; None where a model generates the end of a text."""
        return None

    def build_likelihood_scorer(self, config: Any) -> DenoisingLikelihood | None:
        """The likelihood that scores the candidates; None for the log-probabilities of the last step."""
        return None

    def wrap_denoiser(self, config: Any, schedule: Schedule) -> Denoiser:
        """The denoiser for the noise of this schedule, with the wrappers that the config asks for."""
        denoiser = self.denoiser.for_sampling(schedule)
        if config.guidance_weight:
            if not self.source_dropout:
                raise Problem(
                    "Guidance needs a model that was also trained without sources: train one with the "
                    "setting source_dropout above 0, or leave guidance_weight at 0."
                )
            denoiser = ClassifierFreeDenoiser(denoiser, self.layout, config.guidance_weight)
        return ClampedDenoiser(denoiser) if config.clamp else denoiser

    def load_classifier_guidance(self, config: DiffusionGenerationConfig) -> ClassifierGuidance:
        """Guidance to `config.guide_class` by the classifier in `config.guide`."""
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

    def build_sampling_schedule(self, config: Any) -> Schedule:
        """The noise schedule of generation."""
        factor = config.sampling_noise_factor
        return self.schedule if factor == 1 else Rescaled(self.schedule, factor)


class LengthPredictingModel(DiffusionModel):
    """A diffusion model that predicts the length of the target first, as Difformer does.

    Args:
        tokenizer: texts to tokens and back.
        length_predictor: the network that predicts the length.
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
        length_predictor: LengthPredictor,
        generation_config: LengthPredictingGenerationConfig,
        training_schedule: Schedule | None = None,
        **parts: Any,
    ) -> None:
        super().__init__(tokenizer, generation_config=generation_config, **parts)
        self.lengths = length_predictor  # the name that its weights have in a model folder
        self.training_schedule = training_schedule or self.schedule

    def likelihood(
        self, texts: Sequence[str], targets: Sequence[str], *, per_token: bool = False, batch: int = 64
    ) -> list[float]:
        """The denoising likelihood of each target, or its mean over the tokens.

        It is −∞ for a target that this model cannot generate. A text that is too long is truncated, as by
        `generate`.
        """
        require_lists("likelihood", texts, targets)
        per_token = parse_flag(per_token, "per_token", where="likelihood")
        batch = parse_whole_number(batch, "batch", where="likelihood")
        self.eval()
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

    def build_bound_schedule(self, config: Any, overrides: Mapping[str, Any]) -> Schedule:
        if "sampling_noise_factor" in overrides:
            return self.build_sampling_schedule(config)
        return self.training_schedule

    @property
    def length_nll(self) -> LengthNll:
        return lambda canvas: self.lengths.nll(self.denoiser.encode(canvas.source), canvas.padding)[:, 0]

    def build_likelihood_scorer(self, config: LengthPredictingGenerationConfig) -> DenoisingLikelihood | None:
        if config.select != "weighted-mbr":
            return None
        return DenoisingLikelihood(self.denoiser, self.training_schedule, self.executor())

    def propose_lengths(
        self, encoded: EncoderOutput, config: LengthPredictingGenerationConfig, template: Template | None
    ) -> tuple[Tensor, Tensor]:
        """The given length, that of the template, or those that the length predictor finds likely."""
        length = config.find_length(template, max_length=self.max_target)
        if length is None:
            beam, choose = config.length_beam, LENGTH_PROPOSALS[config.lengths]
            cache_key = ("lengths", self.lengths.output_projection.weight.data_ptr(), beam, config.lengths)
            propose = partial(self.lengths.propose, beam=beam, choose=choose)
            return self.executor().run(cache_key, propose, encoded)
        return self.propose_single_length(encoded, length)


_DECODERS: dict[str, Callable[..., ParallelDecoder]] = {
    "parallel": ParallelDecoder,
    "token-by-token": TokenByTokenDecoder,
    "word-by-word": WordByWordDecoder,
}
