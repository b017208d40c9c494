"""From model to sentence: strategies and selection."""
