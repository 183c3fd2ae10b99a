"""Run the command in a fresh process for each request, without importing torch each time.

A server imports the entry point once and forks: the child gets its own arguments, folder, standard
input and output, calls the real ``main`` and exits with its code. Nothing of torch runs in the
server, so forking it is safe.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import HANG


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str
    #: The most memory that the process held, in bytes; a part of it is the server's.
    peak: int = 0


class Server:
    """A running server; one for each test process."""

    def __init__(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if name != "BICORE_DATA"
        } | {"COLUMNS": "200"}
        command = [sys.executable, "-m", "tests.cli_server"]
        root = Path(__file__).parents[1]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=root,
        )

    def __call__(self, *words: Any, cwd: Any = None, input: str = "", seconds: int = 0) -> Result:
        """Run the command; kill it after ``seconds``, if there are any."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {
            "words": [str(word) for word in words],
            "cwd": str(cwd or Path.cwd()),
            "input": input,
            "seconds": seconds,
        }
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return Result(**json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=HANG)


#: Modules that commands import when they run: imported once, every child has them.
SHARED = (
    *("pandas", "scipy.stats"),
    *(f"pyarrow.{name}" for name in ("compute", "csv", "dataset", "parquet")),
    *(f"sklearn.{name}" for name in ("datasets", "decomposition", "ensemble", "isotonic")),
    *(f"sklearn.{name}" for name in ("linear_model", "metrics", "neighbors")),
    "matplotlib.figure",
    "matplotlib.backends.backend_agg",
    "mpl_toolkits.mplot3d",
    "pydantic.json_schema",
    "typer._adapters",
    "bicore.cli.app",
    *(f"bicore.cli.{name}" for name in ("answer", "compare", "select", "show", "stream", "worth")),
)


@cache
def build_parser_once() -> None:
    """Build the parser of the command once in this process, not in every call."""
    import typer.main

    from bicore.cli import app

    setattr(app, "_make_app", cache(app._make_app))  # noqa: B010
    setattr(typer.main, "get_command", cache(typer.main.get_command))  # noqa: B010
    typer.main.get_command(app._make_app())


def run_command(
    patch: pytest.MonkeyPatch,
    words: list[str],
    input: str,
    largest_file: int | None = None,
    output: str | None = None,
    encoding: str = "utf-8",
    replace: dict[str, Any] | None = None,
    without: tuple[str, ...] = (),
) -> int:
    """Run the command in this process and return its exit code.

    A file may have at most ``largest_file`` bytes, standard output goes to ``output`` in
    ``encoding``, and some names are replaced or removed for as long as the command runs.
    """
    from bicore.cli.app import main

    build_parser_once()
    patch.setenv("COLUMNS", "200")
    patch.setenv("BICORE_CACHE", os.path.abspath("cache"))  # no test finds the records of another
    patch.delenv("BICORE_DATA", raising=False)
    patch.setattr(sys, "argv", ["bicore", *words])
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input.encode())))
    for place, value in (replace or {}).items():
        patch.setattr(place, value)
    for place in without:
        patch.delattr(place)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    out = open(1 if output is None else output, "w", encoding=encoding, closefd=output is not None)  # noqa: SIM115
    patch.setattr(sys, "stdout", out)
    code: object = 0
    try:
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, limits[1]))
        main()
        out.flush()
    except SystemExit as stop:
        code = stop.code
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with contextlib.suppress(OSError):
            out.close()
    return code if isinstance(code, int) else int(bool(code))


def _serve() -> None:
    for name in SHARED:
        with contextlib.suppress(ImportError):  # of another version, or not installed
            importlib.import_module(name)
    build_parser_once()
    for line in sys.stdin:
        request = json.loads(line)
        with (
            tempfile.TemporaryFile("w+") as given,
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
        ):
            given.write(request["input"])
            given.flush()
            given.seek(0)
            child = os.fork()
            if child == 0:
                _run(request, given.fileno(), out.fileno(), err.fileno())
            _, status, usage = os.wait4(child, 0)
            out.seek(0)
            err.seek(0)
            answer = {
                "returncode": os.waitstatus_to_exitcode(status),
                "stdout": out.read(),
                "stderr": err.read(),
                "peak": usage.ru_maxrss * 1024,
            }
        print(json.dumps(answer), flush=True)


def _run(request: dict[str, Any], given: int, out: int, err: int) -> None:
    """The child: become the command."""
    code = 1
    try:
        for source, target in ((given, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        sys.stdin = os.fdopen(0, "r")
        sys.stdout = os.fdopen(1, "w", encoding="utf-8")
        sys.stderr = os.fdopen(2, "w")
        signal.alarm(request["seconds"])
        os.chdir(request["cwd"])
        # no test finds the records of another
        os.environ["BICORE_CACHE"] = os.path.join(request["cwd"], "cache")
        sys.argv = ["bicore", *request["words"]]
        from bicore.cli.app import main

        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


if __name__ == "__main__":
    _serve()
