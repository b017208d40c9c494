"""The optimiser of every recipe: AdamW over what is trained, in one kernel where a GPU can."""

from __future__ import annotations

import torch
from torch import nn

from noise2text.training.config import TrainingSettings

__all__ = ["adamw"]


def adamw(module: nn.Module, settings: TrainingSettings, device: torch.device) -> torch.optim.AdamW:
    """AdamW over the module's trained parameters, which are on the device."""
    return torch.optim.AdamW(
        [parameter for parameter in module.parameters() if parameter.requires_grad],
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=device.type == "cuda",
    )
