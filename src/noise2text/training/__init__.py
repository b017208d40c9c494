"""From pairs to model: objective, loop, checkpoints and averages."""
