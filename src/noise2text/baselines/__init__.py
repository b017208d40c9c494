"""What diffusion is compared with."""
