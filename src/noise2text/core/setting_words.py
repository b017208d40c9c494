"""Other words that people use for a setting, and its name here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from noise2text.core.errors import find_closest, list_some

__all__ = ["REMARKS", "SYNONYMS", "is_synonym", "suggest_setting"]

SYNONYMS: dict[str, str] = {
    "lr": "learning_rate peak_lr max_lr",
    "lr_schedule": "lr_scheduler lr_scheduler_type scheduler decay lr_decay",
    "warmup": "warmup_steps warmup_updates num_warmup_steps",
    "optim.steps": "epochs num_epochs num_train_epochs max_epochs max_steps max_updates updates iterations",
    "max_tokens": "tokens batch batch_size batch_tokens per_device_train_batch_size",
    "accumulate": "gradient_accumulation gradient_accumulation_steps grad_accumulation update_freq",
    "clip_norm": "clip grad_clip gradient_clip gradient_clipping gradient_clip_val max_grad_norm",
    "ema_decay": "ema ema_rate",
    "average_best": "average checkpoint_averaging",
    "betas": "adam_betas",
    "weight_decay": "wd",
    "label_smoothing": "smoothing",
    "seed": "random_seed",
    "model_dim": "width hidden_size hidden_dim d_model dim",
    "ffn_dim": "ffn ffn_size d_ff d_ffn intermediate_size feedforward",
    "embedding_dim": "embedding embedding_size emb_dim d_emb",
    "heads": "num_heads n_heads attention_heads num_attention_heads",
    "layers": "num_layers n_layers num_hidden_layers depth",
    "encoder_layers and decoder_layers": "layers num_layers n_layers num_hidden_layers depth",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "vocabulary": "vocab vocab_size vocabulary_size",
    "normalize": "normalise normalization",
    "max_source": "max_source_length max_src_len",
    "max_target": "max_target_length max_tgt_len max_length max_len seq_len",
    "schedule": "noise_schedule",
    "num_timesteps": "timesteps diffusion_steps train_timesteps num_train_timesteps",
    "self_conditioning": "self_cond",
    "generation.steps": "num_inference_steps inference_steps sampling_steps num_steps",
    "generation_steps": "num_inference_steps inference_steps sampling_steps num_steps",
    "steps": "num_inference_steps inference_steps sampling_steps num_steps",
    "beam": "beam_size num_beams",
    "length_beam": "beam beam_size num_beams",
    "noise_beam": "candidates num_candidates num_return_sequences",
    "noise_factor": "factor noise_scale",
    "sampling_noise_factor": "factor noise_scale",
    "stop_when_sure": "early_exit early_stopping",
    "guidance_weight": "guidance guidance_scale cfg cfg_scale",
    "select": "selection selector rerank",
}
"""Settings, and other words for them. If a word stands for several settings, the first one that exists is
suggested; "a and b" is suggested if both exist."""

REMARKS: dict[str, str] = {
    **dict.fromkeys(
        ("epochs", "num_epochs", "num_train_epochs", "max_epochs"), "training counts updates, not epochs"
    ),
    **dict.fromkeys(("batch", "batch_size"), "a batch counts padded tokens, not sentences"),
    **dict.fromkeys(
        ("guidance_scale", "cfg_scale"), "the weight is the scale minus 1, so that 0 is no guidance"
    ),
    **dict.fromkeys(
        ("candidates", "num_candidates", "num_return_sequences"),
        "candidates are noises, times lengths where a model predicts them",
    ),
}
"""Words that mean something slightly different from the setting, and how."""


def is_synonym(name: str, settings: Collection[str]) -> bool:
    """Whether people use this word for one of these settings, which has another name."""
    return any(name in words.split() and each in settings for each, words in SYNONYMS.items())


def suggest_setting(
    name: str, match: Callable[[str], list[str]], *, settings: Sequence[str], sections: Sequence[str]
) -> str:
    """A suggestion for an unknown name; `match` finds the full names that match a name."""
    short = name.rpartition(".")[2]
    elsewhere = match(short)
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere)}?"
    for setting, words in SYNONYMS.items():
        meant = [" or ".join(match(each)) for each in setting.split(" and ")]
        if short in words.split() and all(meant):
            verb = f"{REMARKS[short]}: set" if short in REMARKS else "it is called"
            return f"{verb} {' and '.join(meant)}."
    closest = find_closest(name, [*settings, *sections, *(each.rpartition(".")[2] for each in settings)])
    if closest is not None:
        return f"did you mean {' or '.join(match(closest))}?"
    return f"the settings are {list_some(settings)}." if settings else "there are no settings."
