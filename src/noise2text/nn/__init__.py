"""What is learned: transformers, heads and the length predictor."""
