"""Corpora and file formats, tokenizers, the token store, batching, layouts and synthetic tasks."""
