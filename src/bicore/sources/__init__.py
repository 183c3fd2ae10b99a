"""Where data comes from."""

from bicore.sources.builtin import digits
from bicore.sources.mnist import mnist

__all__ = ["digits", "mnist"]
