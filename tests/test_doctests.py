"""The examples of docstrings run as written."""

import doctest
import importlib
import pkgutil
import warnings

import pytest

import bicore

#: Examples that train networks or repeat selections for seconds.
TRAINING = ["bicore.evaluate.models", "bicore.evaluate.worth", "bicore.streaming.replay"]
TRAINING += ["bicore.report.figures", "bicore.streaming.moment_memory"]


def check(modules):
    """Run the examples of modules; doctest prints what it found."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    failed = []
    for name in modules:
        with warnings.catch_warnings():  # an example may change the filters
            if doctest.testmod(importlib.import_module(name), optionflags=flags).failed:
                failed.append(name)
    assert not failed, failed


def test_docstring_examples():
    modules = [found.name for found in pkgutil.walk_packages(bicore.__path__, "bicore.")]
    assert set(TRAINING) < set(modules)
    check(["bicore", *(name for name in modules if name not in TRAINING)])


@pytest.mark.slow
def test_docstring_examples_that_train():
    check(TRAINING)
