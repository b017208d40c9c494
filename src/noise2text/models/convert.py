"""Older model folders, brought up to today's format: names of weights and of settings changed, values did not."""

from __future__ import annotations

import re

__all__ = ["convert_weight_name"]

_WEIGHT_NAMES = [
    (r"^writer\.", "network."),
    (r"\beditor\.", "transformer."),
    (r"\bspace\.table$", "embedding.weight"),
    (r"\bforeign\.table$", "source_embedding.weight"),
    (r"\bspace\.", "embedding."),
    (r"\battention\.project\.", "self_attention.qkv_projection."),
    (r"\battention\.merge\.", "self_attention.output_projection."),
    (r"\battention_norm\.", "self_attention_norm."),
    (r"\bcross\.project\.", "cross_attention.query_projection."),
    (r"\bcross\.merge\.", "cross_attention.output_projection."),
    (r"\bcross_norm\.", "cross_attention_norm."),
    (r"\bcross\.", "key_value_projection."),
    (r"\bfeed\.", "feed_forward."),
    (r"\bfeed_norm\.", "feed_forward_norm."),
    (r"\bpositions\.", "position_embedding."),
    (r"\b(project|up)\.", "input_projection."),
    (r"\b(out|down)\.", "output_projection."),
    (r"\bscores\.", "projection."),
    (r"\btime\.network\.", "time_embedding.mlp."),
    (r"\blengths\.classes\.", "lengths.output_projection."),
    (r"\bdeletes\.", "deletion_head."),
    (r"\bopens\.", "placeholder_head."),
    (r"\bschedule\.sums$", "schedule.loss_sums"),
    (r"\bschedule\.table$", "schedule.alpha_bars"),
    (r"\battend\.", "key_projection."),
    (r"\bforwards\.", "forward_layers."),
    (r"\bbackwards\.", "backward_layers."),
    (r"\binto\.", "latent_projection."),
]


def convert_weight_name(name: str) -> str:
    """Today's name of a weight that format 1 called `name`; the weights of a Hugging Face network keep theirs."""
    head, inner, tail = name.partition(".model.") if name.startswith("writer.") else (name, "", "")
    head += inner and "."
    for pattern, new in _WEIGHT_NAMES:
        head = re.sub(pattern, new, head)
    return head.removesuffix(".") + inner + tail if inner else head
