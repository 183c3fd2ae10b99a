"""Options that verbs share, in groups; every group is a panel of the help.

A verb takes groups as arguments. :func:`as_command` gives the parser one option for each of their
fields. Names and defaults that the help shows are repeated here, because it must not wait for
torch; a test compares them with those of the library.
"""

from __future__ import annotations

import inspect
import itertools
import os
import re
import shlex
import warnings
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer
from typer.core import TyperCommand

from bicore import defaults
from bicore._version import __version__
from bicore.cli.terminal import interrupt, print_answer, print_note
from bicore.errors import InputError, unknown_name

if TYPE_CHECKING:
    from bicore.runtime.context import Runtime
    from bicore.sources.base import Source

#: Endings of output files that several verbs write.
ENDINGS = {"picture": (".png", ".pdf", ".svg"), "report": (".html", ".htm")}


#: Names in help texts, such as {JUDGES}.
_TUPLES = {name: one for name, one in vars(defaults).items() if isinstance(one, tuple)}
_LISTS = {name: ", ".join(map(str, one)) for name, one in _TUPLES.items()}
#: A field of a group and its help, in a section "Attributes" of the docstring.
_ATTRIBUTE = re.compile(r"^(\w+)\n((?: {4}.+\n?)+)", re.MULTILINE)
#: The panel that only ``--help-all`` shows.
ADVANCED = "Advanced"
#: The option of each argument of Python, for the verb that runs.
_OPTIONS: dict[str, str] = {}
#: Words of the command for words of Python in messages of the library.
_WORDS = {
    "Runtime(memory=…)": "--memory",
    "use float32": "use --dtype float32",
    "BilevelSelector(exact=True)": "--exact",
    "smooth_labels=True": "--smooth-labels yes",
    "smooth_labels=False": "--smooth-labels no",
    ", or None for all rows": "",
    ", or a NumPy generator": "",
    "give y (target=… or labels=…)": "give --target or --labels",
    "'balanced' or a mapping {label: count}": "balanced or LABEL=COUNT,LABEL=COUNT,…",
    "'data', 'equal' or a share per label, such as {'cat': 0.3, 'dog': 0.7}": (
        "data, equal or a share per label, such as cat=0.3,dog=0.7"
    ),
    "a class of y;": "a class of the labels;",
    "two classes of y a share": "two classes a share",
    "pass initial.indices for its rows": (
        "give the SOURCE from which it was selected, or leave initial out"
    ),
    "give y, or another method": "give --target or --labels, or another --method",
}
#: An argument in a message: with a value, as its subject, or in a phrase; not in a call.
_ARGUMENT = re.compile(
    r"[\w.]+\([^()]*\)"
    r"|(?<![\w./\\'\"-])(?P<name>[a-z_]+)="
    r"(?P<value>'[^']*'|\{[^{}]*\}|True|…|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\.?\w)|(?= ))"
    r"|(?:(?<=raise )|(?<=larger )|(?<=constant ))(?P<long>[a-z]+_[a-z_]+)"
    r"|^(?P<subject>[a-z_]+)(?= (?:must|needs|is empty|was selected)\b)"
    r"|^(?P<prefix>quotas|prior)(?=: )"
    r"|(?<=leave )(?P<unused>[a-z_]+)(?= out)|(?<=no option )'(?P<no>[a-z_]+)'"
)
#: A list of arguments in a message.
_LISTED = re.compile(r"(Allowed: |Its options: )([a-z_, ]+)")


def option(
    metavar: str | None = None, *, default: Any = None, name: str = "", advanced: bool = False
) -> Any:
    """Define an option of a group; the docstring of the group has its help."""
    panel = ADVANCED if advanced else None
    info = typer.Option(*name.split(), metavar=metavar, rich_help_panel=panel)
    return field(default=default, metadata={"info": info, "name": name.partition(" ")[0]})


def argument(metavar: str) -> Any:
    """Define a positional argument of a group."""
    return field(metadata={"info": typer.Argument(metavar=metavar), "name": metavar})


def action(name: str, run: Callable[..., None], words: str) -> Any:
    """Define an option that runs a function instead of the command."""
    return typer.Option(name, callback=run, is_eager=True, help=words)


@dataclass(frozen=True)
class Table:
    """A source and its reading options.

    Attributes
    ----------
    source
        digits, mnist, cifar10, a file (.npz, .npy, .csv, .tsv, .txt, .json, .jsonl, .parquet,
        .feather, .arrow; text also .gz, .bz2, .zst, .zip), a folder of images, or - (CSV on
        standard input).
    target
        Target column of a table, or several numeric columns, comma-separated.
    labels
        File of labels, for a .npy or sparse .npz source.
    drop
        Comma-separated columns to exclude.
    drop_missing_target
        Exclude table rows that have no target.
    decimal
        Decimal separator, if it cannot be inferred.
    missing
        Comma-separated words for missing values, e.g. 'n.a.' (default: empty, NA, nan,
        …).
    encoding
        Text encoding (default: inferred).
    data
        Folder with mnist or cifar10 in torchvision's layout (default: $BICORE_DATA).
    limit
        Read only the first N rows.
    scale
        Feature scaling (default: standard for tables and images, none for other
        arrays, fixed constants for digits, mnist and cifar10).
    """

    panel: ClassVar[str] = "Data"
    source: str = argument("SOURCE")
    target: str | None = option("COLUMN")
    labels: str | None = option("FILE.npy")
    drop: str | None = option("COLUMNS")
    drop_missing_target: bool = option(default=False, advanced=True)
    decimal: str | None = option("comma|point", advanced=True)
    missing: str | None = option("WORDS", advanced=True)
    encoding: str | None = option("NAME", advanced=True)
    data: str | None = option("DIR", advanced=True)
    limit: int | None = option("N")
    scale: str | None = option("standard|none")

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise InputError("SOURCE is empty; give a file, a folder, digits, or - for a pipe.")

    def options(self) -> dict[str, Any]:
        """The options of :func:`bicore.sources.open_source`."""
        return {name: value for name, value in vars(self).items() if name != "source"}

    def open(self, **more: Any) -> Source:
        """Read the source."""
        from bicore.sources.opening import open_source

        return open_source(self.source, **self.options(), **more)

    def open_test(self) -> Source | None:
        """Read the test set of a built-in source."""
        from bicore.sources.opening import open_test

        return open_test(self.source, self.data, self.scale)


@dataclass(frozen=True)
class Data(Table):
    """A source with named feature columns.

    Attributes
    ----------
    columns
        Comma-separated columns to use as features.
    embeddings
        File of features that replace the columns of a table, one row per table row.
    """

    columns: str | None = option("COLUMNS", name="--columns --features")
    embeddings: str | None = option("FILE.npy")


@dataclass(frozen=True)
class Limits:
    """The device and the limits of the work.

    Attributes
    ----------
    device
        Device: auto, cpu or cuda.
    memory
        Memory limit, e.g. 2GB (default: 4GB).
    threads
        Number of CPU threads (default: all).
    """

    panel: ClassVar[str] = "Limits"
    device: str = "auto"
    memory: str | None = option("SIZE")
    threads: int | None = option(advanced=True)

    def runtime(self, **more: Any) -> Runtime:
        """Return the limits as a runtime."""
        from bicore.runtime.context import Runtime

        return Runtime(**vars(self), **more)


@dataclass(frozen=True)
class Output:
    """Options for printing the answer.

    Attributes
    ----------
    json
        Print the result as one JSON object.
    quiet
        Print only the result: no progress, notes or warnings.
    """

    panel: ClassVar[str] = "Output"
    json: bool = False
    quiet: bool = False

    def print_note(self, *notes: str) -> None:
        """Print notes, unless --quiet or --json is given."""
        if not self.quiet:
            print_note(*notes)

    def print_answer(self, *lines: str) -> None:
        """Print lines of the answer, unless it is a JSON object."""
        if not self.json:
            print_answer(*lines)


@dataclass(frozen=True)
class Files(Output):
    """Options for printing and writing the answer.

    Attributes
    ----------
    force
        Overwrite existing files.
    """

    force: bool = False

    def check(self, **endings: tuple[str, ...]) -> None:
        """Refuse files that cannot be written, before any work."""
        for name, allowed in {**endings, **ENDINGS}.items():
            check_output(getattr(self, name, None), self.force, allowed, f"--{name}")


def as_command(app: typer.Typer, verb: Callable[..., None]) -> None:
    """Add a command to the parser; each field of its groups becomes an option."""
    groups = {name: kind for name, kind in get_type_hints(verb).items() if name != "return"}
    flat = [_HELP_ALL, *itertools.chain.from_iterable(map(_parameters, groups.values()))]

    @wraps(verb)
    def run(help_all: bool, **given: Any) -> None:
        _OPTIONS.clear()
        for one in itertools.chain.from_iterable(map(fields, groups.values())):
            _OPTIONS[one.name] = one.metadata.get("name") or as_words(one.name, True)
        if given.get("quiet"):
            warnings.simplefilter("ignore")
        made = {
            name: kind(**{one.name: given.pop(one.name) for one in fields(kind)})
            for name, kind in groups.items()
        }
        try:
            verb(**made)
        except KeyboardInterrupt:
            interrupt("; no result was saved.")

    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in flat}
    app.command(cls=PanelCommand)(run)


def name_options(words: str) -> str:
    """Return a message of the library with options of the command for arguments of Python."""
    for python, command in _WORDS.items():
        words = words.replace(python, command)
    return _ARGUMENT.sub(_as_option, _LISTED.sub(_list_options, words))


def _list_options(found: re.Match[str]) -> str:
    options = [_OPTIONS[name] for name in found[2].split(", ") if name in _OPTIONS]
    return f"{found[1]}{', '.join(options) or found[2]}"


def _as_option(found: re.Match[str]) -> str:
    """Return the option for an argument, with its value; anything else as it was found."""
    name = next(filter(None, found.group("name", "long", "subject", "prefix", "unused", "no")), "")
    option, value = _OPTIONS.get(name, found[0]), found["value"]
    if name not in _OPTIONS or value in (None, "", "…", "True"):
        return option
    if value.startswith("{"):  # shares by label
        value = value.strip("{}").replace("'", "").replace(": ", "=").replace(", ", ",")
    return f"{option} {shlex.quote(value.strip(chr(39)))}"


def _help_of(group: type) -> dict[str, str]:
    """Return the help of each option, from the docstrings of a group and its base classes."""
    found: dict[str, str] = {}
    for kind in reversed(group.__mro__):
        for name, words in _ATTRIBUTE.findall(inspect.getdoc(kind) or ""):
            found[name] = " ".join(words.split()).format_map(_LISTS)
    return found


def _parameters(group: Any) -> list[inspect.Parameter]:
    """Return the options of a group as parameters of a function."""
    hints, helps = get_type_hints(group), _help_of(group)
    found = []
    for one in fields(group):
        info = copy(one.metadata["info"]) if one.metadata else typer.Option()
        if hints[one.name] is bool and info.default is ...:  # without a name it gets a --no-… too
            info.default = f"--{one.name.replace('_', '-')}"
        info.help = info.help or helps.get(one.name)  # none without docstrings (-OO)
        info.rich_help_panel = info.rich_help_panel or group.panel
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        found.append(
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=Annotated[hints[one.name], info],
            )
        )
    return found


def _print_all_help(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        ctx.meta[ADVANCED] = True
        print_answer(*ctx.get_help().splitlines())
        raise typer.Exit


_HELP_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, action("--help-all", _print_all_help, "Show all options, including advanced ones.")
    ],
)


class PanelCommand(TyperCommand):
    """A command whose help lists options by panel, without loading rich."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write a section for each panel; advanced options only for --help-all, others last."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if record is not None:
                panel = getattr(one, "rich_help_panel", None) or "Other"
                panels.setdefault(panel, []).append(record)
        other = panels.pop("Other", [])
        advanced = panels.pop(ADVANCED, [])
        if advanced and ADVANCED in ctx.meta:
            panels[ADVANCED] = advanced
        panels["Other"] = other
        for name, records in panels.items():
            with formatter.section(name):
                formatter.write_dl(records)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_answer(f"bicore {__version__}")
        raise typer.Exit


def print_version(
    version: Annotated[bool, action("--version", _print_version, "Print the version.")] = False,
) -> None:
    """Declare the options of ``bicore`` itself."""


def read_size(text: str) -> int | float | str:
    """Parse a count, a fraction below 1, a percentage, or auto."""
    if text == "auto":
        return text
    with suppress(ValueError):
        if text.endswith("%"):
            share = float(text[:-1])
            if 0 < share <= 100:
                return share / 100
        else:
            size = float(text) if "." in text or "e" in text.lower() else int(text)
            if size > 0:
                return size
    rule = "--size must be a count >= 1, a fraction below 1, a percentage up to 100% or auto"
    raise InputError(f"{rule}; got {text!r}.")


def read_regulariser(text: str) -> Any:
    """Parse auto, learned, a number, relative:SHARE or per-point:NUMBER."""
    if text in ("auto", "learned") or text.lower().startswith("relative:"):
        return text
    from bicore.bilevel.problem import PerPoint

    number = text.removeprefix("per-point:")
    try:
        value = float(number)
    except ValueError:
        rule = "auto, learned, a number > 0, relative:SHARE or per-point:NUMBER"
        raise InputError(f"--inner-reg must be {rule}; got {text!r}.") from None
    return value if number == text else PerPoint(value)


def read_shares(name: str, text: str, kind: type[int] | type[float]) -> Any:
    """Parse a word, or LABEL=NUMBER,… as numbers by label; digits are integer labels."""
    if "=" not in text:
        return text
    numbers: dict[Any, float] = {}
    for part in text.split(","):
        label, _, number = part.rpartition("=")
        try:
            numbers[int(label) if label.lstrip("-").isdigit() else label] = kind(number)
        except ValueError:
            rule = f"{name} must be LABEL=NUMBER,… (cat=20,dog=5) or a word of --help"
            raise InputError(f"{rule}; got {part!r}.") from None
    return numbers


def read_names(text: str) -> list[str]:
    """Split comma-separated names."""
    return [word.strip() for word in text.split(",")]


def as_words(name: str, value: Any) -> str:
    """Format an option as in a command."""
    return f"--{name.replace('_', '-')}" + ("" if value is True else f" {value}")


def check_method(name: str) -> None:
    """Refuse a method that is unknown or needs a network, before reading data."""
    from bicore.methods.registry import METHODS, as_selector

    if name not in METHODS:
        usable = [one for one in METHODS if not as_selector(one).needs_model]
        raise unknown_name("method", name, usable)
    if as_selector(name).needs_model:
        wrong = f"--method {name} needs a trained network, and the command has none"
        fix = f"call bicore.select(…, method={name!r}, model=…) from Python, or use bicore compare"
        raise InputError(f"{wrong}; {fix}.")


def check_folder(path: Path) -> None:
    """Check, before any work, that a new folder can be created at this path."""
    if path.exists():
        raise InputError(f"--out {path} exists; give the name of a new folder.")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"--out {path}: {path.parent} is not a writable folder.")


def check_output(path: Path | None, force: bool, endings: tuple[str, ...], name: str) -> None:
    """Check, before any work, the file type, the folder and existing files."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        allowed = " or ".join(", ".join(endings).rsplit(", ", 1))
        raise InputError(f"{name} {path} must end in {allowed}.")
    if not path.parent.is_dir():
        raise InputError(f"{name} {path}: the folder {path.parent} does not exist; create it.")
    if path.is_dir():
        raise InputError(f"{name} {path} is a folder; give a file name.")
    if path.exists() and not force:
        raise InputError(f"{name} {path} exists; choose another name, or --force to overwrite it.")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{name} {path}: no permission to write into {path.parent}.")
