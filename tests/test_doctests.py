"""The examples of docstrings run as written; a file of their own, since workers take whole files."""

import doctest
import importlib
import pkgutil
import warnings

import pytest

import bicore

#: Examples that train networks or repeat selections for seconds.
TRAINING = {
    "bicore.evaluate.models",
    "bicore.evaluate.worth",
    "bicore.streaming.replay",
}
MODULES = ["bicore", *(found.name for found in pkgutil.walk_packages(bicore.__path__, "bicore."))]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in TRAINING)) for name in MODULES],
)
def test_docstring_examples(name):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    with warnings.catch_warnings():  # an example may change the filters
        assert doctest.testmod(importlib.import_module(name), optionflags=flags).failed == 0
