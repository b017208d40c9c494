"""What makes models fast and nothing that they need: CUDA graphs, fused layers, Triton, int8, ONNX."""
