"""``bicore``: the verbs, and what each kind of failure becomes.

Exit codes: 0 done, 1 a failure while working, 2 a request that cannot be right, 130 interrupted.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from bicore._version import __version__
from bicore.cli.compare import compare
from bicore.cli.doctor import doctor
from bicore.cli.estimate import estimate
from bicore.cli.kernel import kernel
from bicore.cli.select import select
from bicore.cli.show import show
from bicore.cli.stream import stream
from bicore.cli.worth import worth
from bicore.errors import BicoreError, InputError, MemoryLimitError

app = typer.Typer(
    name="bicore",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Pick the few points of a data set that train a model almost as well as all of it.",
    epilog="Example: bicore select digits --size 50 --out picks.npz",
)
for verb in (select, estimate, worth, compare, stream, kernel, show, doctor):
    app.command()(verb)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"bicore {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point."""
    try:
        app()
    except (InputError, MemoryLimitError) as error:
        _stop(error, 2)
    except BicoreError as error:
        _stop(error, 1)
    except PermissionError as error:
        _stop(f"no permission for {error.filename}; change its mode, or choose another place.", 2)
    except OSError as error:
        name = f" ({error.filename})" if error.filename else ""
        _stop(f"{error.strerror or error}{name}; what was there before is unchanged.", 1)


def _stop(message: object, code: int) -> None:
    print(f"bicore: {message}", file=sys.stderr)
    raise SystemExit(code)
