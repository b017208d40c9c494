"""A word of another library or of a paper leads to the setting, or to the reason why there is none."""

from __future__ import annotations

from typing import Any

import pytest

from noise2text.core.config import describe
from noise2text.core.errors import Problem
from noise2text.core.setting_words import (
    NO_SETTINGS,
    REMARKS,
    SYNONYMS,
    explain_misplaced_setting,
    is_known_word,
)
from noise2text.models.registry import find_recipe, list_recipes

EVERY_SETTING = {name for recipe in list_recipes().values() for name, _, _ in describe(recipe.preset())}


def refusal(config: Any, word: str) -> str:
    """What a config says of a word that is none of its settings, after the word."""
    with pytest.raises(Problem) as problem:
        config.replace({word: 1})
    return str(problem.value).partition("; ")[2]


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        # transformers
        ("learning_rate peak_lr", "optim.lr"),
        ("lr_scheduler_type", "optim.lr_schedule"),
        ("warmup_steps warmup_ratio", "optim.warmup"),
        ("num_train_epochs epochs max_steps train_steps total_steps num_train_steps", "optim.steps"),
        ("per_device_train_batch_size batch_size batchsize bs", "optim.max_tokens"),
        ("gradient_accumulation_steps", "optim.accumulate"),
        ("max_grad_norm", "optim.clip_norm"),
        ("adam_beta1 adam_beta2", "optim.betas"),
        ("label_smoothing_factor", "diffusion.label_smoothing"),
        ("eval_steps", "run.validate_every"),
        ("save_steps", "run.save_every"),
        ("logging_steps", "run.log_every"),
        ("metric_for_best_model", "run.best_by"),
        ("report_to wandb tensorboard", "run.loggers"),
        ("fp16 bf16 amp torch_dtype", "run.precision"),
        ("torch_compile", "run.acceleration"),
        ("fsdp", "run.sharded"),
        ("hidden_size d_model n_embd", "model.model_dim"),
        ("intermediate_size d_ff", "model.ffn_dim"),
        ("num_attention_heads n_head", "model.heads"),
        ("num_hidden_layers n_layer", "model.encoder_layers and model.decoder_layers"),
        ("hidden_dropout_prob attention_dropout", "model.dropout"),
        ("vocab_size", "data.vocabulary"),
        ("max_source_length", "data.max_source"),
        ("max_target_length max_length max_new_tokens", "data.max_target"),
        ("num_beams", "generation.length_beam"),
        # fairseq, and Difformer's code on it
        ("max_update", "optim.steps"),
        ("max_sentences", "optim.max_tokens"),
        ("update_freq", "optim.accumulate"),
        ("save_interval_updates", "run.save_every"),
        ("validate_interval_updates", "run.validate_every"),
        ("log_interval", "run.log_every"),
        ("encoder_embed_dim", "model.model_dim"),
        ("encoder_ffn_embed_dim", "model.ffn_dim"),
        ("encoder_attention_heads", "model.heads"),
        ("latent_dim", "model.embedding_dim"),
        ("rescale_factor", "diffusion.noise_factor"),
        ("self_cond", "diffusion.self_conditioning"),
        ("decoding_steps", "generation.steps"),
        ("decoding_early_stopping", "generation.stop_early"),
        ("length_beam_size", "generation.length_beam"),
        ("noise_beam_size", "generation.noise_beam"),
        # Lightning
        ("max_epochs", "optim.steps"),
        ("accumulate_grad_batches", "optim.accumulate"),
        ("gradient_clip_val", "optim.clip_norm"),
        ("val_check_interval check_val_every_n_epoch validation_interval", "run.validate_every"),
        ("every_n_train_steps checkpoint_every", "run.save_every"),
        ("log_every_n_steps", "run.log_every"),
        # diffusers, DiffuSeq, SeqDiffuSeq and the papers
        ("num_train_timesteps diff_steps T", "diffusion.num_timesteps"),
        ("noise_schedule beta_schedule", "diffusion.schedule"),
        ("schedule_sampler", "diffusion.time_sampler"),
        ("num_inference_steps", "generation.steps"),
        ("guidance_scale", "generation.guidance_weight"),
        ("clip_denoised", "generation.clamp"),
        ("learning_steps lr_anneal_steps", "optim.steps"),
        ("bsz", "optim.max_tokens"),
        ("ema_rate", "optim.ema_decay"),
        ("schedule_update_stride", "diffusion.refit_every"),
        ("seq_len", "data.max_target"),
        ("d", "model.embedding_dim"),
        ("F", "diffusion.noise_factor"),
        ("w", "generation.guidance_weight"),
    ],
)
def test_a_word_of_another_library_leads_to_the_setting_of_difformer(words: str, setting: str) -> None:
    config = find_recipe("difformer").preset()
    for word in words.split():
        said = refusal(config, word)
        assert said == f"it is called {setting}." or said.endswith(f": set {setting}."), (word, said)


@pytest.mark.parametrize(
    ("recipe", "words", "setting"),
    [
        ("transformer", "num_beams", "generation.beam"),
        ("transformer", "do_sample", "generation.samples"),
        ("transformer", "lenpen", "generation.length_penalty"),
        ("transformer", "num_beam_groups", "generation.diverse_groups"),
        ("transformer", "label_smoothing_factor", "optim.label_smoothing"),
        ("diffuseq", "num_layers", "model.layers"),
        ("diffuseq", "predict_xstart prediction_type", "diffusion.parameterization"),
        ("seqdiffuseq", "generate_by_mix_prob", "generation.prior_rate"),
        ("cmlm", "iter_decode_max_iter", "generation.iterations"),
    ],
)
def test_a_word_leads_to_the_setting_of_its_recipe(recipe: str, words: str, setting: str) -> None:
    config = find_recipe(recipe).preset()
    for word in words.split():
        said = refusal(config, word)
        assert said == f"it is called {setting}." or said.endswith(f": set {setting}."), (word, said)


@pytest.mark.parametrize(
    ("words", "sentence", "misleading"),
    [
        (
            "optimizer adamw adam_epsilon",
            "the optimizer is AdamW, whose settings are in the section optim.",
            "",
        ),
        ("activation activation_fn hidden_act", "the activation belongs to the network,", "acceleration"),
        ("early_stopping patience", "training runs all of optim.steps,", "stop_when_sure"),
        ("temperature top_p", "only models that write from left to right sample tokens;", "template"),
        ("length_penalty", "only a beam search has a length penalty.", "length_beam"),
        ("repetition_penalty", "generation has no penalty for repeated words.", "length"),
        ("output_dir save_dir", "a run's folder is the argument out.", ""),
        ("devices gpus", "the hardware is the argument device.", ""),
        ("resume_from_checkpoint", "a run is continued with the argument resume.", ""),
        ("num_return_sequences", "how many texts an input gets is the argument n.", ""),
        ("min_lr", "the learning rate rises from 0 over warmup updates,", ""),
    ],
)
def test_a_word_for_what_is_no_setting_says_why(words: str, sentence: str, misleading: str) -> None:
    config = find_recipe("difformer").preset()
    for word in words.split():
        said = refusal(config, word)
        assert said.startswith(sentence), word
        assert not misleading or misleading not in said


def test_a_word_of_training_leads_no_generation_astray() -> None:
    generation = find_recipe("difformer").preset().generation
    assert refusal(generation, "early_stopping") == "generation takes the steps that its settings say."
    assert refusal(generation, "max_length") == "the longest text is that of training (max_target)."
    assert "template" not in refusal(generation, "temperature")
    assert is_known_word("temperature", ["template"])
    assert not is_known_word("templates", ["template"])


def test_every_setting_that_words_lead_to_is_one_of_some_recipe() -> None:
    short = EVERY_SETTING | {name.rpartition(".")[2] for name in EVERY_SETTING} | {"generation_steps"}
    assert {each for setting in SYNONYMS for each in setting.split(" and ")} <= short
    assert {needed for _, needed, _ in NO_SETTINGS if needed} <= short


def test_no_word_is_listed_twice_for_a_setting_or_has_a_remark_alone() -> None:
    for words in SYNONYMS.values():
        assert len(words.split()) == len(set(words.split()))
    assert set(REMARKS) <= {word for words in SYNONYMS.values() for word in words.split()}


def test_a_setting_that_is_given_elsewhere_is_named_in_full() -> None:
    settings = ["optim.steps", "generation.steps", "optim.lr"]
    assert explain_misplaced_setting("lr", settings) == "it is the setting optim.lr."
    assert explain_misplaced_setting("steps", settings) == (
        "it is the setting optim.steps or generation.steps."
    )
    assert explain_misplaced_setting("learning-rate", settings) == "it is called optim.lr."
    assert explain_misplaced_setting("nonsense", settings) is None
