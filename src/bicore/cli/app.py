"""The entry point of ``bicore``: its verbs, and the exit code of each kind of failure.

Exit codes: 0 done, 1 failure while working, 2 invalid request, 130 interrupted. Verbs import the
library when they are called, so that help texts do not wait for torch.
"""

from __future__ import annotations

import sys
from typing import Any

from bicore.cli import terminal


def main() -> None:
    """Run the command and exit."""
    with terminal.exit_on_interrupt():
        import warnings

        terminal.prepare_streams()
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *more, **named: terminal.print_note(
                f"bicore: {_name_options(message)}"
            )
            code, message = _run()
        if message is not None:
            terminal.print_note(f"bicore: {message}")
        terminal.close_output()
    raise SystemExit(code)


def _run() -> tuple[int, object]:
    """Run the command of the arguments; return its exit code and an error message."""
    import typer

    from bicore.errors import BicoreError, InputError, MemoryLimitError

    # the base class of all errors of the parser; its place differs between versions of typer
    parents = typer.BadParameter.__mro__
    usage_error: type[Exception] = parents[parents.index(Exception) - 1]
    try:
        return _make_app()(rename_options(sys.argv[1:]), standalone_mode=False) or 0, None
    except usage_error as error:
        return _explain_usage(error)
    except typer.Abort:
        return terminal.EXIT_INTERRUPTED, "interrupted; no result was saved."
    except (InputError, MemoryLimitError) as error:
        return 2, _name_options(error)
    except BicoreError as error:
        return 1, _name_options(error)
    except PermissionError as error:
        return 2, f"no permission for {error.filename}; change its mode, or choose another place."
    except BrokenPipeError:  # the output was closed by its reader
        return 1, None
    except OSError as error:
        name = f" ({error.filename})" if error.filename else ""
        return 1, f"{error.strerror or error}{name}; existing files are unchanged."
    except MemoryError:
        return (1, "not enough memory; read fewer rows with --limit, or set --memory.")


#: Options of version 0.2, until version 1.1: of all verbs, with their values, and of stream.
OLD_OPTIONS = {
    "--large exact": "--exact",
    "--large approximate": "",
    "--passes exact": "--passes --exact",
    "--passes auto": "--passes",
    "--targets given": "--smooth-labels no",
    "--targets smoothed": "--smooth-labels yes",
    "--targets auto": "--smooth-labels auto",
    "--weights binary": "--weighting uniform",
    "--weights equal": "--weighting uniform",
    "--weights learnt": "--weighting learned",
    "--everything": "--full-pool",
    "--most": "--max-rows",
}
OLD_OF_STREAM = {"--features": "--feature-map", "--rule": "--strategy", "--weights": "--weighting"}
#: Verbs and options that are gone, and what to do instead.
REMOVED = {
    "kernel": "select with --kernel NAME, or write the matrix from Python",
    "select --worth": "use bicore worth",
    "select --judge": "use bicore worth --judge",
    "stream --append": "append the rows to the source, and run it again with the same --state",
}
#: What an option needs, by the type of a validation error.
KINDS_OF_NUMBER = {"int_parsing": "an integer", "float_parsing": "a number"}


def rename_options(words: list[str]) -> list[str]:
    """Replace options of version 0.2 by their new names, with a warning for each."""
    from bicore.errors import InputError

    verb = words[0] if words else ""
    for old in (verb, *(f"{verb} {word.partition('=')[0]}" for word in words[1:])):
        if old in REMOVED:
            raise InputError(f"{old} was removed; {REMOVED[old]}.")
    place = 0
    while place < len(words):
        one, two = words[place], " ".join(words[place : place + 2])
        old, new = two, OLD_OPTIONS.get(two)
        if new is None:
            own = OLD_OF_STREAM if words[0] == "stream" else OLD_OPTIONS
            old, new = one, own.get(one)
        if new is not None:
            gone = f"{old} is deprecated and will be removed in version 1.1"
            terminal.print_note(f"bicore: {gone}; use {new or 'nothing'}.")
            words = [*words[:place], *new.split(), *words[place + len(old.split()) :]]
        place += 1 if new is None else len(new.split())
    return words


def _name_options(message: object) -> str:
    from bicore.cli.options import name_options

    return name_options(str(message))


def _explain_usage(error: Any) -> tuple[int, str | None]:
    words = _explain_value(error) or error.format_message()
    if "\n" in words:  # the help of a command without arguments
        terminal.print_note(*words.splitlines())
        return error.exit_code, None
    where = getattr(error, "ctx", None)
    if where is not None:
        words = f"{_end_sentence(words)} See {where.command_path} --help."
    return error.exit_code, words


def _end_sentence(words: str) -> str:
    """Return a sentence with exactly one mark at its end."""
    words = words.rstrip(".")
    return words if words.endswith("?") else f"{words}."


def _explain_value(error: Any) -> str | None:
    """Return the option, the expected kind and the value, if Typer refused a value; otherwise
    None."""
    refused: list[Any] = getattr(error.__cause__, "errors", list)()
    kind = KINDS_OF_NUMBER.get(refused[0]["type"]) if refused else None
    if kind is None:
        return None
    return f"{error.param.opts[0]} must be {kind}; got {refused[0]['input']!r}."


def _make_app() -> Any:
    """Build the parser of all commands."""
    import typer

    from bicore.cli.compare import compare
    from bicore.cli.options import as_command, print_version
    from bicore.cli.select import contexts, estimate, query, select
    from bicore.cli.show import doctor, show
    from bicore.cli.stream import predict, stream
    from bicore.cli.worth import worth

    app = typer.Typer(
        name="bicore",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Select the few rows of a data set that train a model almost as well as all rows.",
        epilog="Example: bicore select digits --size 50 --out picks.npz",
    )
    for verb in (select, query, contexts, estimate, worth, compare, stream, predict, show, doctor):
        as_command(app, verb)
    app.callback()(print_version)
    return app
