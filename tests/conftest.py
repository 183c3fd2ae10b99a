"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import HANG
from tests.browser import Browser, chromium
from tests.cli_server import Result, Server, run_command


def pytest_configure(config: pytest.Config) -> None:
    """Prepare a process that runs tests; one that only hands them out needs no imports."""
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    import torch
    from hypothesis import settings

    settings.register_profile("bicore", deadline=None, max_examples=10, derandomize=True)
    settings.load_profile("bicore")
    torch.set_num_threads(1)  # the tests run in two processes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need a GPU if there is none."""
    import torch

    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session")
def process() -> Iterator[Server]:
    """The command in a process of its own for every call; its server takes seconds to start."""
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium, where there is one."""
    if chromium() is None:
        pytest.skip("no Chromium on this machine")
    found = Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture
def bicore(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., Result]:
    """The command in this process: what it reads, writes and says, and its exit code."""

    def run(*words: object, cwd: Path | None = None, input: str = "", **changes: Any) -> Result:
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(cwd or tmp_path)
            code = run_command(patch, [str(word) for word in words], input, **changes)
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture
def command(bicore: Callable[..., Result]) -> Callable[..., Result]:
    """The command in an empty folder."""
    return bicore


@pytest.fixture
def long_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the first point however slow the machine is, so that a tiny limit ends after it."""
    monkeypatch.setattr("bicore.runtime.clock.GRACE_SECONDS", HANG)


@pytest.fixture
def few_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let large data begin at a tenth of the rows, so that their tests take a tenth of the time."""
    monkeypatch.setattr("bicore.methods.sampling.EXACT_ROWS", 500)
    monkeypatch.setattr("bicore.methods.sampling.CANDIDATES", 400)
    monkeypatch.setattr("bicore.methods.sampling.OBJECTIVE_ROWS", 800)
