"""The verbs of ``bicore`` as one application.

Their files hold what may be asked for; what does the work is imported when a verb is called, so
that a help text waits for no library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from bicore._version import __version__
from bicore.cli.compare import compare
from bicore.cli.doctor import doctor
from bicore.cli.estimate import estimate
from bicore.cli.kernel import kernel
from bicore.cli.select import select
from bicore.cli.show import show
from bicore.cli.starting import EXIT_INTERRUPTED
from bicore.cli.stream import stream
from bicore.cli.telling import say, tell
from bicore.cli.worth import worth

app = typer.Typer(
    name="bicore",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Pick the few points of a data set that train a model almost as well as all of it.",
    epilog="Example: bicore select digits --size 50 --out picks.npz",
)
#: What an option that cannot be read is to typer; the class has moved from version to version.
_REFUSAL: type[Exception] = typer.BadParameter.__mro__[
    typer.BadParameter.__mro__.index(Exception) - 1
]


def _interruptible(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb, which says so where an interrupt finds nothing that could be kept."""

    @wraps(verb)
    def wrapped(*given: Any, **named: Any) -> None:
        try:
            verb(*given, **named)
        except KeyboardInterrupt:
            tell("bicore: interrupted; there is nothing to keep.")
            raise typer.Exit(EXIT_INTERRUPTED) from None

    return wrapped


for verb in (select, estimate, worth, compare, stream, kernel, show, doctor):
    app.command()(_interruptible(verb))


def run() -> tuple[int, str | None]:
    """Do what the arguments ask for: the exit code, and words where they cannot be read."""
    try:
        return app(standalone_mode=False) or 0, None
    except _REFUSAL as error:
        return _refused(error)
    except typer.Abort:  # an interrupt while options are read, to some versions of typer
        return EXIT_INTERRUPTED, "interrupted; there is nothing to keep."


def _refused(error: Any) -> tuple[int, str | None]:
    words = error.format_message()
    if "\n" in words:  # the help that stands for a command without arguments
        tell(*words.splitlines())
        return error.exit_code, None
    where = getattr(error, "ctx", None)
    return error.exit_code, words if where is None else f"{words} See {where.command_path} --help."


def _version(wanted: bool) -> None:
    if wanted:
        say(f"bicore {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass
