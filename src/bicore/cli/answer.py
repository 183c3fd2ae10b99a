"""The answer of a selection: text, JSON, and files, so that rows are never lost."""

from __future__ import annotations

import shlex
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import typer

from bicore._version import __version__
from bicore.cli.options import name_options
from bicore.cli.terminal import EXIT_INTERRUPTED, interrupt, print_answer, print_json, print_note
from bicore.cli.worth import find_worth
from bicore.coreset import Coreset, Status
from bicore.errors import LargeDataWarning
from bicore.evaluate.worth import Appraisal
from bicore.files import replacing
from bicore.report import figures
from bicore.report.page_of_selection import further_fits, page
from bicore.sources import tables
from bicore.sources.base import Source
from bicore.sources.images import copy_images

#: Maximum numbers of rows and classes that a report lists.
MOST_ROWS, MOST_CLASSES = 15, 20
#: Additions to the first line, by the first words of a note on a replacement.
REPLACEMENTS = {"\nlabels: none ": "; bilevel needs labels", "\nlarge data: ": "; approximate"}
#: Fields of the provenance that are also fields of the JSON answer.
FACTS = ("method", "kernel", "loss", "inner_reg", "seed", "classes")
#: Files for rows that could not be written to their destination, and of interrupted runs.
RESCUE, PARTIAL = "bicore-selection.npz", "bicore-partial.npz"


#: Evaluates the selected rows.
Appraise = Callable[[Coreset], Appraisal]


def command() -> str:
    """Return the command as it was given."""
    return shlex.join(["bicore", *sys.argv[1:]])


def to_json(coreset: Coreset) -> dict[str, Any]:
    """Return the answer for ``--json``."""
    known = coreset.provenance
    return {
        "indices": coreset.indices.tolist(),
        "weights": coreset.weights.tolist(),
        "objective": coreset.objective,
        "seconds": known.seconds,
        "size": len(coreset),
        "n": known.rows,
        **{name: getattr(known, name) for name in FACTS},
        "status": coreset.status.value,
        "message": coreset.message,
        "notes": list(known.notes),
        "version": __version__,
    }


def describe(coreset: Coreset, notes: bool = True) -> list[str]:
    """Describe the rows, the problem, the objective and the time; then the notes."""
    known = coreset.provenance
    task = "" if known.task is None else f", {known.task}"
    lines = "\n".join(("", *known.notes))
    replaced = "".join(words for start, words in REPLACEMENTS.items() if start in lines)
    line = f"{len(coreset)} of {known.rows} rows ({known.method}{task}{replaced})"
    if known.loss is not None and known.inner_reg is not None:
        line += f": {known.loss} loss, kernel {known.kernel}, regularisation {known.regulariser}"
    if coreset.objective is not None:
        line += f", objective {coreset.objective:.5g}"
    ending = [] if coreset.status is Status.COMPLETE else [f"status: {coreset.message}"]
    shown = map(name_options, known.notes if notes else ())
    return [f"{line}, {known.seconds:.2f} s", *ending, *shown]


def shorten(values: Any) -> str:
    """List the first of many values, separated by commas."""
    words = [str(value) for value in values[: MOST_ROWS + 1]]
    return ", ".join(words[:MOST_ROWS]) + (" …" if len(words) > MOST_ROWS else "")


def free_name(path: Path) -> Path:
    """Return the path, or the first numbered one that does not exist."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return found


@dataclass
class Written:
    """The output files; if one cannot be written, the rows are saved elsewhere."""

    coreset: Coreset
    #: Whether existing files are overwritten, including those that another process has just
    #: written.
    force: bool
    paths: list[Path] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    #: Whether a file holds the rows.
    held: bool = False

    def write(self, path: Path | None, how: Callable[[Path], object], holds: bool = False) -> None:
        """Write a file; if a file that ``holds`` the rows fails, they are saved elsewhere."""
        if path is None:
            return

        def replace() -> None:
            with replacing(path, overwrite=self.force) as temporary:
                how(temporary)

        self.attempt(path, replace, holds)

    def attempt(self, path: Path, action: Callable[[], object], holds: bool) -> None:
        """Run an action that writes a path, or record its error."""
        try:
            action()
        except (Exception, KeyboardInterrupt) as error:  # the rows may have taken hours
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            place = f" The rows are printed, and {self._rescue()}." if holds else ""
            self.failures.append(f"{path} could not be written ({reason}).{place}")
        else:
            self.paths.append(path)
            self.held = self.held or holds

    @contextmanager
    def save_elsewhere_on_failure(self) -> Iterator[None]:
        """Save the rows in a file if standard output cannot be written."""
        try:
            yield
        except BrokenPipeError:  # the output was closed by its reader
            raise
        except OSError:
            if not self.held:
                print_note(f"bicore: standard output cannot be written; the rows {self._rescue()}.")
            raise

    def _rescue(self) -> str:
        """Save the rows in the first folder that accepts them; return where, in words."""
        for folder in (Path(), Path(tempfile.gettempdir()), Path.home()):
            with suppress(Exception):
                kept = free_name(folder / RESCUE)
                with replacing(kept, overwrite=False) as temporary:
                    self.coreset.save(temporary)
                self.held = True
                return f"are kept in {kept}"
        return "could not be kept in any file"

    def finish(self, printed: bool) -> None:
        """If a file failed, print all rows unless they are ``printed``, and exit with code 1."""
        if not self.failures:
            return
        if not printed:
            print_answer(f"all rows: {','.join(map(str, self.coreset.indices.tolist()))}")
            if not self.coreset.binary:
                print_answer(f"all weights: {','.join(map(repr, self.coreset.weights.tolist()))}")
        print_note(*(f"bicore: {words}" for words in self.failures))
        raise typer.Exit(1)


def exit_interrupted(coreset: Coreset, kept: Path | None, state: Path | None, out: bool) -> None:
    """Report where an interrupted selection was saved, and the command that continues it."""
    words = ["bicore", *sys.argv[1:]]
    if state is None and kept is not None:
        words += ["--initial", str(kept), *(["--force"] if out else [])]
    print_note(f"bicore: {coreset.message}; kept in {state or kept}.")
    if state is None and (kept is None or kept.suffix.lower() != ".npz"):
        print_note("The command starts from the beginning again: only .npz files can be continued.")
    else:
        print_note("To continue:", shlex.join(words))
    raise typer.Exit(EXIT_INTERRUPTED)


def finish(
    name: str,
    source: Source | None,
    coreset: Coreset,
    output: Any,
    appraise: Appraise | None,
    state: Path | None,
) -> None:
    """Write files first, then print, and make the page last; an interrupted run keeps its rows.

    ``source`` is None for rows in parts.
    """
    stopped = coreset.status is Status.INTERRUPTED
    kept = output.out
    if kept is None and stopped and state is None:
        kept = free_name(Path(PARTIAL))
    story = _with_origin(name, source, coreset)
    written = Written(story, output.force)
    if source is not None and kept is not None and not kept.suffix:
        written.attempt(kept, lambda: copy_images(source, coreset.indices, kept), holds=True)
    else:
        written.write(kept, lambda path: _save(source, story, path), holds=True)
    if source is not None:
        written.write(output.picture, lambda path: figures.draw(source, coreset, path))
    with written.save_elsewhere_on_failure():
        if output.json:
            counts = coreset.details if "passes" in coreset.details else {}
            print_json({**to_json(coreset), **counts, **_rows_in_file(source, coreset)})
        elif not output.quiet or output.out is None:
            print_answer(*_report(source, coreset, written.paths, output.quiet))
    if output.report is not None and source is not None:
        _write_page(source, coreset, None if stopped else appraise, output, written)
    written.finish(output.json)
    if stopped:
        exit_interrupted(coreset, kept, state, output.out is not None)


def _write_page(
    source: Source, coreset: Coreset, appraise: Appraise | None, output: Any, written: Written
) -> None:
    """Evaluate the rows, which may take longer than the selection, and write the report."""
    appraisal = None if appraise is None else appraise(coreset)
    if appraisal is not None:
        fits = f"{further_fits(appraisal)} further fits of at most {appraisal.size} rows"
        why = "to score the first rows (--no-worth omits both)"
        output.print_note(f"report: the worth, then {fits} {why}")
        try:
            with warnings.catch_warnings():  # already shown during the selection
                warnings.simplefilter("ignore", LargeDataWarning)
                find_worth(appraisal, output)
        except KeyboardInterrupt:
            interrupt(" while evaluating; the selection is complete.")

    def write(path: Path) -> None:
        page(
            source.data,
            coreset,
            path,
            appraisal=appraisal,
            name=source.name,
            images=source.images,
            cells=source.cells,
            command=command(),
            notes=source.notes,
        )

    written.write(output.report, write)
    if output.report in written.paths and not output.json and not output.quiet:
        print_answer(f"written: {output.report}")


def _with_origin(name: str, source: Source | None, coreset: Coreset) -> Coreset:
    """Return the coreset with its source, encoding and command."""
    notes = () if source is None else source.notes
    details = {} if source is None else {"scale": source.scale}
    every = (*notes, *coreset.provenance.notes, f"To reproduce: {command()}")
    in_file = _rows_in_file(source, coreset)
    return coreset.with_details({"notes": every}, source=name, **details, **in_file)


def _rows_in_file(source: Source | None, coreset: Coreset) -> dict[str, list[int]]:
    """Return the row numbers in the file, if some of its rows were skipped."""
    if source is None or (source.data.ids == np.arange(len(source.data))).all():
        return {}
    return {"rows": source.data.ids[coreset.indices].tolist()}


def _save(source: Source | None, coreset: Coreset, path: Path) -> None:
    """Write a coreset file, or the chosen rows of a table."""
    if path.suffix.lower() == ".npz" or source is None:
        coreset.save(path)
    else:
        tables.write_rows(path, source.table, coreset.indices, coreset.weights, "weight")


def _report(source: Source | None, coreset: Coreset, paths: list[Path], quiet: bool) -> list[str]:
    """Describe the answer."""
    lines = describe(coreset, notes=not quiet)
    if "passes" in coreset.details:
        counts = coreset.details.items()
        lines.append(", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in counts))
    classes = coreset.provenance.classes
    if classes and source is not None and source.data.y is not None:
        labels = source.data.y[coreset.indices].ravel().tolist()
        lines.append(f"by class: {count_classes(labels, classes)}")
    lines.append(f"rows, most useful first (the first row is 0): {shorten(coreset.indices)}")
    for rows in _rows_in_file(source, coreset).values():
        lines.append(f"their row numbers in the file: {shorten(rows)}")
    if source is not None and source.root is not None:
        files = tables.take_rows(source.table, coreset.indices)["file"]
        lines.append(f"files, most useful first: {shorten(files)}")
    return [*lines, *(f"written: {path}" for path in paths)]


def count_classes(labels: Sequence[Any], classes: Sequence[Any]) -> str:
    """List the number of rows per class."""
    counts = Counter(map(str, labels))
    parts = [f"{label}: {counts[str(label)]}" for label in classes[:MOST_CLASSES]]
    return ", ".join(parts) + (" …" if len(classes) > MOST_CLASSES else "")
