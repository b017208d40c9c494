"""Random texts for the metrics: words of several scripts, emoji, nothing at all, and any characters."""

from __future__ import annotations

from hypothesis import strategies as st

__all__ = ["Corpus", "corpora", "scripts", "sentences"]

WORDS = ["the", "cat", "sat", "on", "mat", ".", "it's", "3.5", "The", "Cat"]
SCRIPTS = ["שלום", "مرحبا", "👩‍👩‍👧", "👍🏽", "北京", "Grüße"]
Corpus = list[tuple[str, list[str], str]]  # a text, its references, its source

sentences = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
scripts = st.one_of(
    sentences, st.lists(st.sampled_from(WORDS + SCRIPTS), max_size=9).map(" ".join), st.text(max_size=12)
)
corpora = st.lists(
    st.tuples(scripts, st.lists(scripts, min_size=1, max_size=3), scripts), min_size=1, max_size=6
)
