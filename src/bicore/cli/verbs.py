"""The verbs of ``bicore`` as one application.

Their files hold what may be asked for; what does the work is imported when a verb is called, so
that a help text waits for no library.
"""

from __future__ import annotations

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
