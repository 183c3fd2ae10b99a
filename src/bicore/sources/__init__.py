"""Where data comes from."""

from bicore.sources.base import Source
from bicore.sources.builtin import digits
from bicore.sources.cifar10 import cifar10
from bicore.sources.mnist import mnist
from bicore.sources.opening import open_source

__all__ = ["Source", "cifar10", "digits", "mnist", "open_source"]
