"""Recipes: every system of the papers, one file for each system or family.

Importing this room registers them all (`models/registry.py` does it when a recipe is first looked for).
"""

from __future__ import annotations

from noise2text.models.registry import register
from noise2text.recipes import (
    ar_diffusion,
    cdcd,
    cmlm,
    copying,
    difformer,
    diffuseq,
    diffuseq_autoregressive,
    diffuseq_decoupled,
    diffuseq_kernel,
    diffuseq_variants,
    diffusion_lm,
    dinoiser,
    gpvae,
    gru,
    levenshtein,
    nearest,
    pretrained,
    seqdiffuseq,
    transformer,
    word_by_word,
)

for _recipe in (
    difformer.RECIPE,
    diffuseq.RECIPE,
    diffusion_lm.RECIPE,
    seqdiffuseq.RECIPE,
    *diffuseq_variants.RECIPES,
    diffuseq_autoregressive.RECIPE,
    word_by_word.RECIPE,
    diffuseq_kernel.RECIPE,
    dinoiser.RECIPE,
    cdcd.RECIPE,
    ar_diffusion.RECIPE,
    transformer.RECIPE,
    gru.RECIPE,
    cmlm.RECIPE,
    levenshtein.RECIPE,
    copying.RECIPE,
    nearest.RECIPE,
    *pretrained.RECIPES,
    gpvae.RECIPE,
    diffuseq_decoupled.RECIPE,
):
    register(_recipe)
