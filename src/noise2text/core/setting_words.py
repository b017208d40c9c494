"""Other words that people use for a setting, and its name here.

The words are those of transformers, fairseq, Lightning, diffusers, and of the papers and their released code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from noise2text.core.errors import find_closest, list_some

__all__ = [
    "NO_SETTINGS",
    "REMARKS",
    "SYNONYMS",
    "explain_misplaced_setting",
    "is_known_word",
    "suggest_setting",
]

SYNONYMS: dict[str, str] = {
    "lr": "learning_rate peak_lr max_lr",
    "lr_schedule": "lr_scheduler lr_scheduler_type scheduler scheduler_type decay lr_decay",
    "warmup": "warmup_steps warmup_updates num_warmup_steps warmup_ratio warmup_epochs",
    "optim.steps": "epoch epochs num_epochs num_train_epochs max_epoch max_epochs max_step max_steps "
    "train_steps training_steps total_steps num_train_steps num_training_steps max_train_steps max_update "
    "max_updates num_updates updates iterations learning_steps lr_anneal_steps",
    "max_tokens": "tokens batch batchsize batch_size bs bsz microbatch train_batch_size max_sentences "
    "batch_tokens tokens_per_batch per_device_train_batch_size",
    "accumulate": "gradient_accumulation gradient_accumulation_steps grad_accumulation grad_accum "
    "accumulate_grad_batches accumulation_steps update_freq",
    "clip_norm": "clip grad_clip gradient_clip gradient_clipping gradient_clip_val max_grad_norm max_norm",
    "ema_decay": "ema ema_rate use_ema",
    "average_best": "average checkpoint_averaging",
    "betas": "adam_betas beta1 beta2 adam_beta1 adam_beta2",
    "weight_decay": "wd l2",
    "label_smoothing": "smoothing label_smoothing_factor",
    "seed": "random_seed random_state manual_seed data_seed",
    "validate_every": "eval_steps eval_every eval_interval eval_freq eval_frequency evaluate_every val_every "
    "val_interval val_check_interval valid_interval validation_interval validation_steps validation_every "
    "validate_interval validate_interval_updates check_val_every_n_epoch",
    "save_every": "save_steps save_interval save_interval_updates save_freq save_frequency checkpoint_every "
    "checkpoint_steps checkpoint_interval checkpointing_steps ckpt_every every_n_train_steps",
    "log_every": "logging_steps log_steps log_interval log_freq logging_interval log_every_n_steps "
    "print_every report_every",
    "best_by": "metric_for_best_model best_checkpoint_metric best_metric monitor",
    "loggers": "logger report_to log_with wandb tensorboard trackio use_wandb wandb_project "
    "tensorboard_logdir",
    "precision": "amp fp16 bf16 half mixed_precision use_amp use_fp16 use_bf16 dtype torch_dtype autocast",
    "acceleration": "compile torch_compile cuda_graphs",
    "sharded": "fsdp fsdp2 deepspeed zero_stage",
    "model_dim": "width hidden_size hidden_dim d_model dim n_embd embed_dim encoder_embed_dim "
    "decoder_embed_dim num_channels",
    "ffn_dim": "ffn ffn_size d_ff d_ffn dim_feedforward intermediate_size feedforward feedforward_dim "
    "encoder_ffn_dim decoder_ffn_dim encoder_ffn_embed_dim decoder_ffn_embed_dim",
    "embedding_dim": "embedding embedding_size emb_dim d_emb latent_dim in_channel out_channel d",
    "heads": "num_heads n_heads n_head nhead attention_heads num_attention_heads encoder_attention_heads "
    "decoder_attention_heads",
    "layers": "num_layers n_layers n_layer num_hidden_layers depth",
    "encoder_layers and decoder_layers": "layers num_layers n_layers n_layer num_hidden_layers depth",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "dropout": "dropout_rate dropout_prob dropout_p hidden_dropout hidden_dropout_prob resid_pdrop "
    "attention_dropout attention_probs_dropout_prob activation_dropout relu_dropout",
    "vocabulary": "vocab vocab_size vocabulary_size bpe_size num_merges",
    "vocabulary_file": "vocab_file",
    "tokenizer": "tokenizer_name tokenizer_type",
    "normalize": "normalise normalization",
    "lowercase": "lower do_lower_case uncased",
    "max_source": "max_source_length max_source_positions max_src_len max_src_length sequence_len_src",
    "max_target": "max_target_length max_target_positions max_tgt_len max_tgt_length max_length max_len "
    "max_seq_len max_seq_length seq_len sequence_len block_size max_new_tokens max_len_b",
    "length": "target_length output_length",
    "schedule": "noise_schedule beta_schedule",
    "num_timesteps": "timesteps diffusion_steps diff_steps train_timesteps num_train_timesteps "
    "num_diffusion_timesteps t",
    "time_sampler": "schedule_sampler timestep_sampler importance_sampling",
    "parameterization": "prediction_type predict pred_type predict_xstart predict_x0",
    "self_conditioning": "self_cond self_condition selfcond",
    "source_dropout": "cond_drop_prob uncond_prob p_uncond unconditional_prob",
    "refit_every": "schedule_update_stride",
    "generation.steps": "num_inference_steps inference_steps sampling_steps decoding_steps num_steps",
    "generation_steps": "num_inference_steps inference_steps sampling_steps decoding_steps num_steps",
    "steps": "num_inference_steps inference_steps sampling_steps decoding_steps num_steps",
    "stop_early": "decoding_early_stopping",
    "stop_when_sure": "early_exit",
    "clamp": "clamping clip_denoised clamp_step thresholding",
    "eta": "ddim_eta",
    "solver": "sampler sampling_method",
    "beam": "beam_size beam_width num_beams",
    "length_beam": "beam beam_size beam_width num_beams length_beam_size",
    "noise_beam": "candidates num_candidates noise_beam_size",
    "length_penalty": "lenpen",
    "diverse_groups": "num_beam_groups diverse_beam_groups",
    "diversity": "diversity_penalty diverse_beam_strength",
    "samples": "do_sample num_samples",
    "iterations": "max_iter iter_decode_max_iter",
    "noise_factor": "factor noise_scale rescale_factor f",
    "sampling_noise_factor": "factor noise_scale decoding_rescale_factor decoding_noise_factor",
    "guidance_weight": "guidance guidance_scale guidance_strength cfg cfg_scale w",
    "prior_rate": "generate_by_mix_prob",
    "prior_share": "generate_by_mix_part",
    "select": "selection selector rerank",
}
"""Settings, and other words for them. If a word stands for several settings, the first one that exists is
suggested; "a and b" is suggested if both exist."""

REMARKS: dict[str, str] = {
    **dict.fromkeys(
        ("epoch", "epochs", "num_epochs", "num_train_epochs", "max_epoch", "max_epochs", "warmup_epochs"),
        "training counts updates, not epochs",
    ),
    "check_val_every_n_epoch": "training counts updates, not epochs",
    "warmup_ratio": "the warm-up counts updates and is no share of them",
    **dict.fromkeys(
        (
            "batch",
            "batchsize",
            "batch_size",
            "bs",
            "bsz",
            "microbatch",
            "train_batch_size",
            "max_sentences",
            "per_device_train_batch_size",
        ),
        "a batch counts padded tokens, not sentences",
    ),
    **dict.fromkeys(("beta1", "beta2", "adam_beta1", "adam_beta2"), "both β of Adam are one setting"),
    **dict.fromkeys(
        ("amp", "fp16", "bf16", "half", "mixed_precision", "use_amp", "use_fp16", "use_bf16", "autocast"),
        "numbers are float32, bfloat16 or auto, which is bfloat16 on a GPU",
    ),
    **dict.fromkeys(
        ("attention_dropout", "attention_probs_dropout_prob", "activation_dropout", "relu_dropout"),
        "there is one rate of dropout",
    ),
    **dict.fromkeys(
        ("guidance_scale", "cfg_scale"), "the weight is the scale minus 1, so that 0 is no guidance"
    ),
    **dict.fromkeys(
        ("candidates", "num_candidates"), "candidates are noises, times lengths where a model predicts them"
    ),
    "do_sample": "sampling is asked for by a number of texts",
}
"""Words that mean something slightly different from the setting, and how."""

NO_SETTINGS: tuple[tuple[str, str, str], ...] = (
    (
        "optimizer optimiser optim_type adam adamw adafactor sgd adam_epsilon adam_eps",
        "optim.betas",
        "the optimizer is AdamW, whose settings are in the section optim.",
    ),
    ("optimizer optimiser adam adamw adafactor sgd", "", "the optimizer is AdamW."),
    (
        "min_lr lr_end stop_min_lr warmup_init_lr",
        "lr_schedule",
        "the learning rate rises from 0 over warmup updates, and falls as lr_schedule says.",
    ),
    (
        "activation activation_fn activation_function hidden_act act_fn",
        "",
        "the activation belongs to the network, and no setting changes it.",
    ),
    (
        "early_stopping early_stopping_patience patience load_best_model_at_end",
        "best_by",
        "training runs all of optim.steps, and its result is the model that is best by run.best_by.",
    ),
    ("early_stopping", "", "generation takes the steps that its settings say."),
    ("num_workers dataloader_num_workers workers", "", "batches need no workers."),
    (
        "temperature top_k top_p typical_p do_sample",
        "noise_beam",
        "only models that write from left to right sample tokens; here other candidates begin with other "
        "noise (noise_beam).",
    ),
    (
        "temperature top_k top_p typical_p do_sample",
        "",
        "only models that write from left to right sample tokens.",
    ),
    (
        "beam beams beam_size beam_width num_beams",
        "noise_beam",
        "there is no beam search; more candidates are more noise samples (noise_beam).",
    ),
    ("length_penalty lenpen", "", "only a beam search has a length penalty."),
    (
        "max_length max_len max_new_tokens max_len_b",
        "",
        "the longest text is that of training (max_target).",
    ),
    (
        "num_return_sequences nbest n_best",
        "",
        "how many texts an input gets is the argument n.",
    ),
    ("repetition_penalty no_repeat_ngram_size", "", "generation has no penalty for repeated words."),
    ("min_length min_new_tokens min_len", "", "generation has no minimum length."),
    (
        "output_dir out_dir save_dir default_root_dir checkpoint_dir run_dir",
        "",
        "a run's folder is the argument out.",
    ),
    (
        "device devices gpu gpus num_gpus accelerator cuda use_cuda no_cuda",
        "",
        "the hardware is the argument device.",
    ),
    (
        "resume_from_checkpoint resume_checkpoint restore_file ckpt_path",
        "",
        "a run is continued with the argument resume.",
    ),
)
"""Words for what is no setting, a setting with which the sentence holds (or "" for any), and the sentence."""


def is_known_word(name: str, settings: Collection[str]) -> bool:
    """Whether `suggest_setting` knows the word, as another name of one of these settings or as none."""
    word = _simplify(name)
    renamed = any(word in words.split() and each in settings for each, words in SYNONYMS.items())
    return renamed or any(word in words.split() for words, _, _ in NO_SETTINGS)


def suggest_setting(
    name: str, match: Callable[[str], list[str]], *, settings: Sequence[str], sections: Sequence[str]
) -> str:
    """A suggestion for an unknown name; `match` finds the full names that match a name."""
    short = name.rpartition(".")[2]
    elsewhere = match(short)
    if elsewhere:
        return f"did you mean {' or '.join(elsewhere)}?"
    explained = _explain_word(short, match)
    if explained is not None:
        return explained
    closest = find_closest(name, [*settings, *sections, *(each.rpartition(".")[2] for each in settings)])
    if closest is not None:
        return f"did you mean {' or '.join(match(closest))}?"
    return f"the settings are {list_some(settings)}." if settings else "there are no settings."


def explain_misplaced_setting(name: str, settings: Collection[str]) -> str | None:
    """What a name stands for that was given where no setting belongs; None if it is no setting's.

    >>> from noise2text.core.setting_words import explain_misplaced_setting
    >>> explain_misplaced_setting("lr", ["optim.lr", "optim.steps"])
    'it is the setting optim.lr.'
    >>> explain_misplaced_setting("epochs", ["optim.lr", "optim.steps"])
    'training counts updates, not epochs: set optim.steps.'
    """

    def match(word: str) -> list[str]:
        return [each for each in settings if each == word or each.endswith(f".{word}")]

    found = match(name.replace("-", "_"))
    return f"it is the setting {' or '.join(found)}." if found else _explain_word(name, match)


def _explain_word(word: str, match: Callable[[str], list[str]]) -> str | None:
    """What the settings call the word, or why it is none of them; None for an unknown word."""
    word = _simplify(word)
    for setting, words in SYNONYMS.items():
        meant = [" or ".join(match(each)) for each in setting.split(" and ")]
        if word in words.split() and all(meant):
            verb = f"{REMARKS[word]}: set" if word in REMARKS else "it is called"
            return f"{verb} {' and '.join(meant)}."
    sentences = (
        sentence for words, needed, sentence in NO_SETTINGS if word in words.split() and _has(match, needed)
    )
    return next(sentences, None)


def _has(match: Callable[[str], list[str]], needed: str) -> bool:
    return not needed or bool(match(needed))


def _simplify(word: str) -> str:
    return word.replace("-", "_").lower()
