"""Systems: what every trained model can do, whatever it is made of."""

from noise2text.system.autoregressive import Autoregressive
from noise2text.system.base import Generated, Stop, System
from noise2text.system.diffusion import Diffusion, GuidedDiffusion, LengthDiffusion

__all__ = ["Autoregressive", "Diffusion", "Generated", "GuidedDiffusion", "LengthDiffusion", "Stop", "System"]
