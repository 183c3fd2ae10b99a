"""``bicore show`` and ``bicore doctor``."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bicore._version import __version__
from bicore.cli.options import argument, name_options
from bicore.cli.terminal import exit_on_interrupt, print_answer
from bicore.errors import InputError

if TYPE_CHECKING:
    from bicore.coreset import Provenance

#: Maximum number of characters of a field.
MOST_CHARACTERS = 300
#: Details that only continued selections need, or that a note contains.
INTERNAL = ("kernel_parameters", "kernel_trials", "solvers")
#: Labels of fields whose names are short, and values of fields in words.
LABELS = {
    "n": "rows of the data",
    "inner_reg": "regularisation",
    "fingerprint": "data fingerprint",
    "weights": "weighting",
    "first": "first row",
    "operator": "kernel matrix",
    "dtype": "precision",
    "effort": "solver steps",
    "scale": "feature scaling",
    "smooth_labels": "labels",
    "bad_rows": "skipped rows",
    "certain": "certain rows",
}
MATRIX_FORMS = {"gram": "stored", "features": "as features", "blocked": "computed in blocks"}
WORDS = {
    "smooth_labels": {"smoothed": "compared with leave-one-out predictions", "given": "as given"},
    "first": {"best": "the row with the best score", "random": "drawn at random"},
    "operator": MATRIX_FORMS,
}
#: The text of a configuration, such as Exchange(rounds=None).
CONFIGURATION = re.compile(r"^([A-Z]\w*)\(.*\)$")
#: Required packages, and the extra (as in pyproject.toml) and the use of optional ones.
NEEDED = ("torch", "numpy", "scipy", "scikit-learn", "threadpoolctl", "typer")
OPTIONAL = {
    "pyarrow": ("tables", "tables"),
    "pillow": ("images", "image folders"),
    "matplotlib": ("pictures", "pictures"),
    "dask": ("dask", "large data on a cluster"),
    "imbalanced-learn": ("imblearn", "resampling with imbalanced-learn"),
    "datasets": ("huggingface", "Hugging Face data sets"),
    "scikit-activeml": ("skactiveml", "active learning with scikit-activeml"),
    "avalanche-lib": ("", "replay with Avalanche"),
}


@dataclass(frozen=True)
class CoresetFile:
    """The file to show.

    Attributes
    ----------
    file
        .npz file written by bicore select --out.
    """

    panel: ClassVar[str] = "Data"
    file: Path = argument("CORESET.npz")


def show(coreset_file: CoresetFile) -> None:
    """Show the rows, settings and command of a coreset file.

    Example: bicore show picks.npz
    """
    file = coreset_file.file
    if not file.exists():
        raise InputError(f"{file} does not exist; check the name.")
    with exit_on_interrupt():
        from bicore.cli.answer import describe, shorten
        from bicore.coreset import Coreset
    coreset = Coreset.load(file)
    print_answer(f"{file}: {describe(coreset, notes=False)[0]}")
    details = {name: one for name, one in coreset.details.items() if name not in INTERNAL}
    facts = {"message": coreset.message or None, **_origin(coreset.provenance), **details}
    for name, value in facts.items():
        if value is not None:
            text = value if name == "parameters" else WORDS.get(name, {}).get(str(value))
            _print_field(LABELS.get(name, name), text or _as_text(value))
    for note in coreset.provenance.notes:
        _print_field("note", name_options(note))
    _print_field("selected rows", shorten(coreset.indices))
    if not coreset.binary:
        _print_field("weights", shorten([f"{weight:.3g}" for weight in coreset.weights]))


def _print_field(name: str, words: str) -> None:
    text = words if len(words) <= MOST_CHARACTERS else f"{words[:MOST_CHARACTERS]} …"
    print_answer(f"  {name[:MOST_CHARACTERS].replace('_', ' '):20s} {text}")


def _origin(known: Provenance) -> dict[str, Any]:
    """Describe the problem that was solved."""
    names = ("method", "task", "kernel", "loss", "inner_reg", "seed", "seconds", "fingerprint")
    fields = {name: getattr(known, name) for name in names}
    return {"n": known.rows, **fields, "inner_reg": known.regulariser}


def _as_text(value: Any) -> str:
    """Format a value: short numbers, and objects by their names."""
    if isinstance(value, Mapping):
        parts = (f"{name} {_as_text(part)}".replace("_", " ") for name, part in value.items())
        return ", ".join(parts)
    if isinstance(value, (list, tuple)):
        return "; ".join(map(_as_text, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return CONFIGURATION.sub(lambda found: found[1].lower(), str(value))


def doctor() -> None:
    """Show versions, devices, memory, and missing packages.

    Example: bicore doctor
    """
    with exit_on_interrupt():
        import torch

        from bicore.runtime.context import free_bytes, human_bytes
    machine = f"{platform.system()} {platform.machine()}"
    print_answer(f"bicore {__version__}, Python {platform.python_version()} on {machine}")
    for name in NEEDED:
        print_answer(f"  {name:16s} {_version(name) or f'MISSING: pip install {name}'}")
    for name, (extra, use) in OPTIONAL.items():
        missing = f"not installed (for {use}): {_install_line(extra)}"
        print_answer(f"  {name:16s} {_version(name) or missing}")
    memory = human_bytes(free_bytes(torch.device("cpu")))
    cores = f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()}"
    print_answer(f"  processor        {cores}; {memory} of memory free")
    for index in range(torch.cuda.device_count()):
        device = torch.device("cuda", index)
        free = human_bytes(free_bytes(device))
        print_answer(f"  GPU {index}            {torch.cuda.get_device_name(device)}, {free} free")
    if not torch.cuda.is_available():
        print_answer("  GPU              torch finds none; bicore runs on the CPU")
    unset = {
        "BICORE_DATA": "not set (only mnist and cifar10 need it)",
        "BICORE_CACHE": "not set (bicore compare stores its records in the user cache)",
    }
    for name, words in unset.items():
        print_answer(f"  {name:16s} {os.environ.get(name) or words}")


def _install_line(extra: str) -> str:
    """Return the command that installs an extra, or Avalanche, which has none, and keeps torch."""
    if extra:
        return f"pip install 'bicore[{extra}]'"
    # torchvision, which Avalanche needs, belongs to one build of torch: pip would replace torch by
    # the newest build for CUDA, or take a torchvision that cannot be imported next to this torch.
    version = str(_version("torch"))
    build = version.partition("+")[2]
    index = f" --extra-index-url https://download.pytorch.org/whl/{build}" if build else ""
    return f"pip install avalanche-lib torch=={version}{index}"


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None
