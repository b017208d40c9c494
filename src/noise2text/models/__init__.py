"""Systems: what every trained model can do, whatever it is made of."""

from noise2text.models.autoregressive import Autoregressive
from noise2text.models.diffusion import Diffusion, GuidedDiffusion, LengthDiffusion
from noise2text.models.model import Generated, Stop, System

__all__ = ["Autoregressive", "Diffusion", "Generated", "GuidedDiffusion", "LengthDiffusion", "Stop", "System"]
