"""Readers: files, data frames and built-in data."""

from bicore.sources.base import Source
from bicore.sources.builtin import digits
from bicore.sources.cifar10 import cifar10
from bicore.sources.mnist import mnist
from bicore.sources.opening import open_source
from bicore.sources.tables import encode_table

__all__ = ["Source", "cifar10", "digits", "encode_table", "mnist", "open_source"]
