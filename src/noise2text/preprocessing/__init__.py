"""Preprocessing: untidy texts become sources that a model knows, and its outputs become one text again."""
