"""The mathematics of diffusion: schedules, parameterizations, losses, samplers and guidance."""
