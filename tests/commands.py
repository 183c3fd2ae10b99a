"""Helpers of the tests of the command."""

from __future__ import annotations

from tests.cli_server import Result


def assert_refused(result: Result, *words: str) -> None:
    """Ended with code 2 and one line that says these words."""
    assert result.returncode == 2, result.stderr or result.stdout
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    for one in words:
        assert one in result.stderr
    assert result.stdout == ""


def assert_success(result: Result) -> Result:
    """Ended with code 0."""
    assert result.returncode == 0, result.stderr
    return result


def says(result: Result, *words: str) -> None:
    """Went well, and said these words."""
    for one in words:
        assert one in assert_success(result).stderr, result.stderr
