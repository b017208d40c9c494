"""What is raised when the user, not the program, can put it right.

The message is one sentence: what is wrong, where, and what to do. The command line prints it
without a traceback and exits with 1.
"""

__all__ = ["Problem", "Stopped"]


class Problem(Exception):
    """A mistake in the input, the settings or the files, said in one sentence."""


class Stopped(Exception):
    """A long job was asked to stop, has saved, and can be resumed; the command line exits with 130."""
