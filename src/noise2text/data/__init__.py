"""Pairs in and out: corpora, tokenizers, memory-mapped tokens, layouts and data order."""
