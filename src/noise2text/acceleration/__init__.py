"""What makes models fast, and nothing that they need: CUDA graphs, fused operations, Triton, int8, ONNX."""
