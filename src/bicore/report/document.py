"""An HTML page in one file: its document, its rows by group, and their map.

Facts travel as JSON inside the file, and plain JavaScript turns them into text and pictures; a
policy allows no other scripts. Data never become markup: names that look like tags stay names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array, Dataset, Targets
from bicore.files import replacing
from bicore.types import PathLike

#: Characters that could end the HTML element with the facts, or a line of JavaScript.
UNSAFE = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}
#: Sections of both pages.
SHARED = ("balance", "map", "classes")


def write_document(kind: str, facts: Mapping[str, Any], path: PathLike) -> Path:
    """Write the page for some facts."""
    with replacing(path) as temporary:
        temporary.write_text(document(kind, facts), encoding="utf-8", newline="\n")
    return Path(path)


def document(kind: str, facts: Mapping[str, Any]) -> str:
    """Return the page for some facts; ``kind`` names its markup and script."""
    style = _static("page.css")
    script = "".join(_static(name) for name in ("common.js", "picks.js", f"{kind}.js"))
    parts = {
        "policy": _policy(style, script),
        "style": style,
        "script": script,
        "facts": as_json(facts),
        **{name: _static(f"{name}.html") for name in SHARED},
    }
    # in one pass, so that placeholders inside the facts are not replaced
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _static(f"{kind}.html"))


def as_json(facts: Mapping[str, Any]) -> str:
    """Facts as JSON that cannot be mistaken for markup inside an HTML element."""
    return json.dumps(facts, allow_nan=False, separators=(",", ":")).translate(UNSAFE)


def _policy(style: str, script: str) -> str:
    """Allow only this style and this script, and no network access."""
    own = f"script-src '{_hash(script)}'; style-src '{_hash(style)}'"
    return f"default-src 'none'; {own}; img-src data:; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _static(name: str) -> str:
    return (resources.files("bicore.report") / "static" / name).read_text(encoding="utf-8")


#: The longest side of an image on the page; larger ones are averaged over blocks.
LONGEST_SIDE = 64
#: PNG's codes for grey and for RGB, by the dimensions of an image.
COLOURS = {2: 0, 3: 2}
#: Limits of the columns and features of a row, and of the characters of a cell, text and name.
MOST_COLUMNS, MOST_FEATURES = 12, 6
LONGEST_CELL, LONGEST_TEXT, LONGEST_NAME = 80, 600, 60
#: A column is text if its cells have this mean number of characters; number of cells read.
TEXT, LOOKED_AT = 30, 50
#: Ranges of targets, each with about as many rows.
RANGES = 10
#: Limits of the rows, and of the numbers in them, that determine the main directions.
DIRECTION_ROWS, DIRECTION_NUMBERS = 5000, 50_000_000
#: Limit of the points on a map: a browser draws them in a fraction of a second.
MOST_POINTS = 50_000
#: Numbers per block of projected rows (8 MB), and the largest coordinate on the grid of a map.
BLOCK, GRID = 1_000_000, 65535


def _shown_as(
    features: Array, images: Array | None, columns: Mapping[str, Sequence[Any]] | None
) -> tuple[str, tuple[str, ...], Callable[[int], Any]]:
    """Show images if there are any; else a column of text, the table, or the features.

    Returns the kind, the column names, and a function from a row to its JSON.
    """
    if images is not None:
        return "images", (), lambda row: image_address(np.asarray(images[row], np.float64))
    if not columns:
        count = min(int(np.prod(features.shape[1:])), MOST_FEATURES)
        names = tuple(f"feature {number}" for number in range(count))
        return "numbers", names, lambda row: _numbers(features[row].ravel()[:count])
    lengths = {name: _mean_length(cells) for name, cells in columns.items()}
    longest = max(lengths, key=lambda name: lengths[name])
    if lengths[longest] >= TEXT:
        text = columns[longest]
        return "text", (longest,), lambda row: shorten(text[row], LONGEST_TEXT)
    names = tuple(columns)[:MOST_COLUMNS]
    cells = [columns[name] for name in names]
    return "table", names, lambda row: [shorten(one[row], LONGEST_CELL) for one in cells]


def shorten(cell: Any, most: int) -> str:
    """Return a cell as text of limited length; empty for None."""
    text = "" if cell is None else str(cell)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _numbers(values: Array) -> list[str]:
    return [f"{value:.4g}" for value in values.tolist()]


def _mean_length(cells: Sequence[Any]) -> float:
    """Return the mean number of characters of some cells."""
    step = max(1, len(cells) // LOOKED_AT)
    some = [len(str(cells[place])) for place in range(0, len(cells), step)]
    return sum(some) / max(1, len(some))


def image_address(image: Array) -> str:
    """Return an image (height, width[, 3]) in 0 … 1 as a data URL of a PNG file."""
    shades = (np.clip(np.nan_to_num(_thumbnail(image)), 0, 1) * 255).round().astype(np.uint8)
    tall, wide = shades.shape[:2]
    # every line begins with the number of its filter (0: none)
    lines = b"".join(b"\0" + line.tobytes() for line in shades)
    head = struct.pack(">IIBBBBB", wide, tall, 8, COLOURS[shades.ndim], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _thumbnail(image: Array) -> Array:
    """Return the image, or means of square blocks if it is too large."""
    step = -(-max(image.shape[:2]) // LONGEST_SIDE)
    if step == 1:
        return image
    high, wide = (min(step, side) for side in image.shape[:2])
    rows, columns = image.shape[0] // high, image.shape[1] // wide
    whole = image[: rows * high, : columns * wide]
    blocks = whole.reshape(rows, high, columns, wide, *image.shape[2:])
    return np.asarray(blocks.mean(axis=(1, 3)))


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _groups(targets: Targets | None, rows: int) -> tuple[str, list[str], Array]:
    """Return classes, ranges of the first target, or one group without labels.

    Returns the kind, the names, and a code for each row.
    """
    if targets is None:
        return "none", ["all rows"], np.zeros(rows, dtype=np.int64)
    if targets.classes is not None:
        names = [shorten(label, LONGEST_NAME) for label in targets.classes.tolist()]
        return "class", names, targets.values.reshape(-1).astype(np.int64)
    first = targets.values.reshape(rows, -1)[:, 0]
    edges = np.unique(np.quantile(first, np.linspace(0, 1, RANGES + 1)))
    if len(edges) < 2:
        return "range", [f"{first[0]:.3g}"], np.zeros(rows, dtype=np.int64)
    names = [f"{low:.3g} … {high:.3g}" for low, high in pairwise(edges.tolist())]
    return "range", names, np.searchsorted(edges[1:-1], first, side="right")


class RowView:
    """The rows of the data set, and how to show them.

    ``columns`` and ``images`` have a cell or an image for each row of the source. ``numbers`` are
    row numbers in the source, if the data are a part of it with ``features`` of its own.
    """

    def __init__(
        self,
        data: Dataset,
        targets: Targets | None,
        images: Array | None,
        columns: Mapping[str, Sequence[Any]] | None,
        features: Array | None = None,
        numbers: Array | None = None,
    ) -> None:
        self.data = data
        self.numbers = np.arange(len(data)) if numbers is None else numbers
        self.kind, self.names, self.codes = _groups(targets, len(data))
        features = data.x if features is None else features
        self.shown, self.columns, self._card = _shown_as(features, images, columns)

    def as_json(self) -> dict[str, Any]:
        """Return the groups, and the column names of a row."""
        counts = np.bincount(self.codes, minlength=len(self.names)).tolist()
        columns = [shorten(one, LONGEST_NAME) for one in self.columns]
        return {
            "groups": {"kind": self.kind, "names": self.names, "counts": counts},
            "shown": {"kind": self.shown, "columns": columns},
        }

    def of(self, rows: Array) -> dict[str, Any]:
        """Return columns of some rows: number, group, and target if groups are ranges."""
        ranges = self.kind == "range"
        return {
            "rows": self.numbers[rows].tolist(),
            "codes": self.codes[rows].tolist(),
            "labels": [self.label(row) for row in rows.tolist()] if ranges else None,
        }

    def card(self, row: int) -> Any:
        """Return a row for JSON."""
        return self._card(int(self.numbers[row]))

    def label(self, row: int) -> str:
        """Return the class of a row, or its targets."""
        if self.kind != "range" or self.data.y is None:
            return self.names[int(self.codes[row])]
        return shorten(", ".join(_numbers(np.ravel(self.data.y[row]))), LONGEST_NAME)

    def map(self, wanted: Array) -> tuple[dict[str, Any], list[list[int]]]:
        """Return the map of the data, and the places of some rows on it.

        The map shows all rows, or evenly spaced ones and those wanted.
        """
        total = len(self.data)
        rows = np.arange(total)
        if total > MOST_POINTS:
            rows = np.union1d(np.linspace(0, total - 1, MOST_POINTS).round().astype(int), wanted)
        places, share = project(self.data.x, rows)
        every = len(rows) == total and bool((self.numbers == rows).all())
        facts = {
            "count": len(rows),
            "of": total,
            "share": share,
            "x": _pack(places[:, 0], "<u2"),
            "y": _pack(places[:, 1], "<u2"),
            "codes": _pack(self.codes[rows], "<u2"),
            "rows": None if every else _pack(self.numbers[rows], "<u4"),
        }
        return facts, places[np.searchsorted(rows, wanted)].astype(int).tolist()


def project(features: Array, rows: Array) -> tuple[Array, float]:
    """Return places of rows on a square grid along the two main directions, and their share of
    variance."""
    mean, directions, share = main_directions(features)
    blocks = np.array_split(rows, -(-len(rows) * len(mean) // BLOCK) or 1)
    flat = np.concatenate([(_vectors(features[block]) - mean) @ directions for block in blocks])
    low, high = flat.min(0), flat.max(0)
    width = np.where(high > low, high - low, 1.0)
    middle = np.where(high > low, 0.0, 0.5)
    return np.rint(((flat - low) / width + middle) * GRID), share


def main_directions(features: Array) -> tuple[Array, Array, float]:
    """Return the mean, the two directions (d, 2) of most variance, and their share of it.

    They come from evenly spaced rows.
    """
    from sklearn.decomposition import PCA

    width = int(np.prod(features.shape[1:]))
    most = max(2, min(DIRECTION_ROWS, DIRECTION_NUMBERS // max(1, width)))
    sample = _vectors(features[:: max(1, len(features) // most)])
    directions = np.zeros((width, 2))
    if len(sample) < 2 or not np.ptp(sample, axis=0).any():
        return sample.mean(0), directions, 1.0
    count = min(2, *sample.shape)
    found = PCA(count, random_state=0).fit(sample)
    directions[:, :count] = found.components_.T
    return found.mean_, directions, min(float(found.explained_variance_ratio_.sum()), 1.0)


def _vectors(rows: Array) -> Array:
    return rows.reshape(len(rows), -1).astype(np.float64)


def _pack(numbers: Array, kind: str) -> str:
    return base64.b64encode(numbers.astype(kind).tobytes()).decode()
