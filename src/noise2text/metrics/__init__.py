"""Numbers: metrics that say how they were made."""
