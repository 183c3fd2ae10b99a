"""Buffers as the command makes and describes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bicore.cli.options import read_regulariser
from bicore.errors import InputError, unknown_name
from bicore.memory.buffer import Buffer
from bicore.memory.registry import BUFFERS, as_buffer
from bicore.selectors.base import Selector
from bicore.selectors.bilevel import BilevelSelector
from bicore.selectors.registry import METHODS, as_selector

#: Which buffer reads which option; those that are not here read none.
READS = {
    "moments": ("features", "rule", "inner_reg", "prior", "half_life"),
    "merge-reduce": ("slots", "method", "kernel", "loss", "inner_reg", "weights"),
}
#: Buffers that look at rows and labels only: a command has no model that trains beside it.
NAMES = [name for name, kind in BUFFERS.items() if not kind.needs_model]


def make_buffer(name: str, capacity: int, seed: int, given: dict[str, Any]) -> Buffer:
    """A buffer by its name with the options given; those that are None were not."""
    check_name(name)
    options = {option: value for option, value in given.items() if value is not None}
    for option in options:
        if option not in READS.get(name, ()):
            raise _not_read(name, option, options[option])
    if "inner_reg" in options:
        options["inner_reg"] = read_regulariser(options["inner_reg"])
    if "prior" in options:
        options["prior"] = _prior(options["prior"])
    if name == "merge-reduce":
        options = _merge_reduce(options)
    return as_buffer(name, capacity, seed, **options)


def check_name(name: str) -> None:
    """Refuse a buffer that is not known, or that needs a model."""
    if name in BUFFERS and name not in NAMES:
        raise InputError(
            f"--buffer {name} needs the current model, which a command does not have; use it from "
            f"Python, or one of {', '.join(NAMES)}."
        )
    if name not in NAMES:
        raise unknown_name("buffer", name, NAMES)


def _not_read(name: str, option: str, value: Any) -> InputError:
    word = f"--{option.replace('_', '-')}"
    owners = [owner for owner, read in READS.items() if option in read]
    own = ", ".join(f"--{one.replace('_', '-')}" for one in READS.get(name, ()))
    return InputError(
        f"{word} {value} belongs to --buffer {' and '.join(owners)}, and the buffer is {name}, "
        f"which reads {own or 'none of these options'}; leave it out, or give --buffer "
        f"{owners[0]}."
    )


def _prior(text: str) -> Any:
    """stream, equal, or LABEL=SHARE,…; labels of digits alone are whole numbers."""
    if "=" not in text:
        return text
    shares: dict[Any, float] = {}
    for part in text.split(","):
        label, _, share = part.rpartition("=")
        try:
            shares[int(label) if label.lstrip("-").isdigit() else label] = float(share)
        except ValueError:
            raise InputError(
                f"--prior {text!r}: {part!r} is no LABEL=SHARE; for example cat=0.5,dog=0.5."
            ) from None
    return shares


def _merge_reduce(options: dict[str, Any]) -> dict[str, Any]:
    own = {name: value for name, value in options.items() if name in ("slots", "weights")}
    return {**own, "selector": _selector(options)}


def _selector(options: dict[str, Any]) -> Selector:
    method = options.get("method", "bilevel")
    if method not in METHODS or as_selector(method).needs_model:
        raise unknown_name(
            "method", method, [name for name in METHODS if not as_selector(name).needs_model]
        )
    if METHODS[method][0] is not BilevelSelector:
        return as_selector(method)
    chosen = {"inner_reg": options.get("inner_reg", "auto")}
    if options.get("kernel", "auto") != "auto":  # else what the method has, or leaves open
        chosen["kernel"] = options["kernel"]
    if options.get("loss", "squared") != "squared":
        chosen["loss"] = options["loss"]
    if options.get("weights") == "learnt":
        chosen["weights"] = "final"
    return as_selector(method, **chosen)


@dataclass(frozen=True)
class Story:
    """What a buffer has to say of its own: for a line, and for JSON.

    ``settled`` says that it will not change any more, and is best told at once.
    """

    words: str
    values: dict[str, Any]
    settled: bool = False


def story_of(name: str, buffer: Any) -> Story | None:
    """None where there is nothing to say: nothing was settled yet, or nothing ever is."""
    tell = _STORIES.get(name)
    return None if tell is None else tell(buffer)


def has_story(name: str) -> bool:
    """Whether a buffer will have something to say, now or once it has settled."""
    return name in _STORIES


#: Reasons of a map that was chosen, in words.
_LOOKS = {
    "image": "images",
    "embedding": "an embedding",
    "pixels": "pixels",
    "table": "a table",
}


def _of_moments(buffer: Any) -> Story | None:
    if buffer.feature_map is None:
        return None
    found = buffer.feature_map
    why = f"the first rows look like {_LOOKS[found.reason]}" if found.reason else "as asked for"
    values = {"features": _shown(found), "reason": found.reason, "width": found.width}
    words = f"rows are compared in: {_shown(found)}, {found.width} numbers a row ({why})"
    return Story(words, values, settled=True)


def _shown(features: Any) -> str:
    """The classes of a map and of those inside it, outermost first."""
    inner = getattr(features, "map", None)
    name = type(features).__name__
    return name if inner is None else f"{name} of {_shown(inner)}"


def _of_merge_reduce(buffer: Any) -> Story | None:
    return Story(f"slots stand for {buffer.levels} chunks", {"levels": buffer.levels})


_STORIES = {"moments": _of_moments, "merge-reduce": _of_merge_reduce}
