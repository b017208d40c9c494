"""Sampling of a batch whose parts take different steps: other times, noise levels, solvers, rules and guides.

    row b of part p:  z ← w_z[k, p]·z + w_z₀[k, p]·ẑ₀ + …,    ẑ₀ ← denoiser(z, level[k, p], …)

At step k each row takes step k of its own part, and the network is called once for all rows: its noise level
is an input of each row. So a batch takes as many passes as the part with most steps. A part with fewer steps
is finished before the others: its estimate stays the one of its last step, and where shapes may change, its
rows leave the network.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from noise2text.core.devices import copy_to_device
from noise2text.diffusion.sampler import (
    ComputeStepTable,
    Guide,
    OnStep,
    Proposal,
    ReverseProcess,
    SampledStep,
    compute_step_table,
)
from noise2text.diffusion.solvers import StepTable, join_step_tables
from noise2text.nn.denoiser import Estimate

__all__ = ["MixedProcess", "PartSampling", "mix_steps"]


@dataclass(frozen=True)
class MixedProcess(ReverseProcess):
    """A process whose rows take the steps of several processes.

    Fields:
        times: of the process with most steps.
        paths: processes that differ in their times, schedule or solver; their rows are not read.
        owners: (B,), the path that each row takes.
    """

    paths: Sequence[ReverseProcess] = ()
    owners: Tensor = field(default_factory=lambda: torch.empty(0))

    def build_step_table(self, compute: ComputeStepTable = compute_step_table) -> StepTable:
        return join_step_tables([compute(each) for each in self.paths], self.owners)


def mix_steps(
    joined: ReverseProcess, processes: Sequence[ReverseProcess], keys: Sequence[Hashable]
) -> ReverseProcess:
    """A process with the rows of `joined`; each takes the steps of its own process and follows its guide.

    Processes with equal keys take the same steps. Rows beyond those of the processes repeat the last one.
    """
    sizes = [len(each.noise_keys) for each in processes]
    joined = replace(joined, guide=_join_guides([each.guide for each in processes], sizes))
    paths = dict(zip(keys, processes, strict=True))
    if len(paths) == 1:
        return joined
    owners = torch.tensor([list(paths).index(key) for key in keys]).repeat_interleave(torch.tensor(sizes))
    repeated = owners[-1:].expand(len(joined.noise_keys) - len(owners))
    return MixedProcess(
        **(vars(joined) | {"times": max((each.times for each in processes), key=len)}),
        paths=list(paths.values()),
        owners=copy_to_device(torch.cat([owners, repeated]), joined.noise_keys.device),
    )


def _join_guides(guides: Sequence[Guide | None], sizes: Sequence[int]) -> Guide | None:
    """A guide that moves the rows of each part by its own guide; None if no part has one."""
    if not any(guides):
        return None

    def guide_parts(proposal: Proposal) -> Tensor:
        z, start = [], 0
        for own, size in zip(guides, sizes, strict=True):
            part = proposal.select(slice(start, start + size))
            z.append(part.z if own is None else own(part))
            start += size
        return torch.cat([*z, proposal.z[start:]])

    return guide_parts


class PartSampling:
    """Which parts of a batch still run, what they finished with, and who is told of their steps.

    It is the stopping rule of the batch: a part is finished by its own rule, and after its own last step.
    """

    def __init__(self, processes: Sequence[ReverseProcess], callbacks: Sequence[OnStep | None]) -> None:
        self.sizes = [len(each.noise_keys) for each in processes]
        self.times = [each.times.tolist() for each in processes]
        self.rules = [each.stopping for each in processes]
        self.callbacks = callbacks
        self.is_running = [True] * len(processes)  # which parts take the next step
        self.taken = self.observed = 0  # steps of the batch
        self.kept: list[Estimate] = []

    @property
    def may_finish_early(self) -> bool:
        """Whether a part may be finished before the last step of the batch."""
        return any(self.rules) or len(set(map(len, self.times))) > 1

    @property
    def is_observed(self) -> bool:
        """Whether someone is told of the steps."""
        return any(self.callbacks)

    @property
    def running(self) -> Tensor:
        """(B,), which rows run; repeated rows beyond the parts do not count."""
        rows = torch.tensor(self.is_running).repeat_interleave(torch.tensor(self.sizes))
        return torch.cat(
            [
                own if rule is None else own & rule.running.cpu()
                for own, rule in zip(rows.split(self.sizes), self.rules, strict=True)
            ]
        )

    def split(self, estimate: Estimate) -> list[Estimate]:
        """The estimate of each part; rows beyond the parts are repeated ones."""
        rows = sum(self.sizes)
        parts = (each[:rows].split(self.sizes) for each in (estimate.z0, estimate.hidden))
        return [Estimate(z0, hidden) for z0, hidden in zip(*parts, strict=True)]

    def keep_finished(self, estimate: Estimate) -> Estimate:
        """The estimate of this step, but that of a finished part is still the one it finished with."""
        parts = self.split(estimate)
        for i, rule in enumerate(self.rules):
            if not self.is_running[i]:
                parts[i] = self.kept[i]
            elif rule is not None:
                parts[i] = rule.keep_finished(parts[i])
        z0, hidden = ([getattr(each, name) for each in parts] for name in ("z0", "hidden"))
        joined = Estimate(torch.cat(z0), torch.cat(hidden))
        self.kept = self.split(joined)  # of the copy: the next step may overwrite the estimate
        self.taken += 1
        return joined

    def is_over(self) -> bool:
        """Whether all parts are finished; the host waits for the device."""
        for i, rule in enumerate(self.rules):
            finished = self.taken >= len(self.times[i]) or (rule is not None and rule.is_over())
            self.is_running[i] &= not finished
        return not any(self.is_running)

    def observe(self, step: SampledStep) -> None:
        """Tell each running part its rows of a step, at the time of its own."""
        number, self.observed = self.observed, self.observed + 1
        noisy = step.z[: sum(self.sizes)].split(self.sizes)
        for i, (z, estimate) in enumerate(zip(noisy, self.split(step.estimate), strict=True)):
            callback = self.callbacks[i]
            if callback is not None and self.is_running[i]:
                callback(SampledStep(self.times[i][number], z, estimate))
