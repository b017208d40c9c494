"""A denoiser that leaves out finished rows, for devices on which the rows of a batch may change.

The noisy state of a finished row then follows the estimate that it finished with. So the noisy tokens of a
trace differ there from those with CUDA graphs, where the network goes on; texts and scores do not.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from noise2text.diffusion.stopping import StoppingRule
from noise2text.nn.denoiser import Constraint, Denoiser, DenoiserWrapper, EncoderOutput, Estimate, NoiseLevel

__all__ = ["RunningRows"]


class RunningRows(DenoiserWrapper):
    """A denoiser of the rows that run; the estimate of another row stays that of the step before."""

    def __init__(self, denoiser: Denoiser, rule: StoppingRule) -> None:
        super().__init__(denoiser)
        self.rule = rule
        self.running: Tensor | None = None  # those of the step before, and what belongs to them:
        self.rows: Tensor
        self.encoded: EncoderOutput
        self.constraint: Constraint
        self.estimate: Estimate

    def forward(
        self,
        z: Tensor,
        level: NoiseLevel,
        encoded: EncoderOutput,
        constraint: Constraint,
        self_condition: Tensor | None,
    ) -> Estimate:
        running = self.rule.running
        if running.all():
            self.estimate = self.denoiser(z, level, encoded, constraint, self_condition)
            return self.estimate
        self._select(running, encoded, constraint)
        rows = self.rows
        own: Estimate = self.denoiser(
            z[rows],
            level.select(rows),
            self.encoded,
            self.constraint,
            None if self_condition is None else self_condition[rows],
        )
        self.estimate = self.estimate.put(rows, own)
        return self.estimate

    def _select(self, running: Tensor, encoded: EncoderOutput, constraint: Constraint) -> None:
        """Keep the numbers, the encodings and the constraint of the rows that run, if others did before."""
        repeated = len(constraint.padding) - len(running)
        running = functional.pad(running, (0, repeated))  # repeated rows do not run
        if self.running is not None and self.running.equal(running):
            return
        self.running, self.rows = running, running.nonzero()[:, 0].to(constraint.padding.device)
        self.constraint = constraint.select(self.rows)
        by_sentence = running.view(len(encoded.padding), -1)  # (sentences, candidates)
        runs = by_sentence.any(1)
        if by_sentence[runs].all():  # whole sentences, whose candidates share an encoding
            self.encoded = encoded.select(runs.nonzero()[:, 0])
        else:
            self.encoded = encoded.select(self.rows // by_sentence.shape[1])
