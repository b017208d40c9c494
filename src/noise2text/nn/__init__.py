"""Networks in plain PyTorch: layers, denoisers, autoregressive networks, length predictor, classifier."""
