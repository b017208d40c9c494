"""The version of the package, in one place."""

__all__ = ["__version__"]

__version__ = "0.2.0.dev0"
