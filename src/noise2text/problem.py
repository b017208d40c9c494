"""What is raised when the user, not the program, can put it right.

The message is one sentence: what is wrong, where, and what to do. The command line prints it
without a traceback and exits with 1.
"""

__all__ = ["Problem"]


class Problem(Exception):
    """A mistake in the input, the settings or the files, said in one sentence."""
