"""A folder of images with a subfolder a class."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.sources.base import Source
from bicore.sources.reading import COPIES, NUMBER, Reading
from bicore.sources.tables import Table

#: Pillow's modes without colour; those that begin with I have more than eight bits.
GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")
CLEAR = ("RGBA", "LA", "PA")
ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
#: What is decoded, whatever a file is called: other decoders of Pillow's start other programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
#: Bytes of a pixel's number as it is decoded, and again in the order of channels.
DECODED = 2 * 4
#: Folders that archives of macOS leave beside what they hold.
_PASSED_OVER = (".", "__MACOSX")


@dataclass(frozen=True)
class _Layout:
    """Images in class folders, and counts of the entries that are not read."""

    files: list[Path]
    deeper: int
    outside: int
    special: int


@dataclass(frozen=True)
class _Heading:
    """What a file says of its image before it is decoded."""

    size: tuple[int, int]
    mode: str


def image_folder(folder: Path, reading: Reading | None = None) -> Source:
    """Every image below the class folders, in order of name; grey when all of them are.

    All must be of one size.
    """
    reading = reading or Reading()
    pillow = _pillow()
    layout = _layout(folder)
    files = layout.files[: reading.limit]
    headings = [_heading(path, pillow) for path in files]
    colour = any(one.mode not in GREY for one in headings)
    _refuse_mixed(files, headings)
    _allow(reading, files, headings[0], colour)
    pixels = _decoded(files, headings[0], colour, pillow)
    x = pixels.transpose(0, 3, 1, 2) if colour else pixels[:, None]
    labels = [path.relative_to(folder).parts[0] for path in files]
    data = Dataset(np.ascontiguousarray(x), np.array(labels))
    names = [str(path.relative_to(folder)) for path in files]
    table = Table(["file", "label"], [names, labels])
    notes = _notes(layout, headings, colour, len(set(labels)))
    return Source(folder.name, data, "standard", notes, images=pixels, table=table)


def _notes(
    layout: _Layout, headings: list[_Heading], colour: bool, classes: int
) -> tuple[str, ...]:
    width, height = headings[0].size
    clear = sum(one.mode in CLEAR for one in headings)
    counted = {
        f"{clear} images have an alpha channel, which was left out": clear,
        f"{layout.deeper} images lie deeper than FOLDER/CLASS/IMAGE and are left out": (
            layout.deeper
        ),
        f"{layout.outside} images lie in no class folder and are left out": layout.outside,
        f"{layout.special} entries named like images are not regular files and are skipped": (
            layout.special
        ),
    }
    first = (
        f"{len(headings)} {'colour' if colour else 'grey'} images of {width}×{height} in "
        f"{classes} class folders"
    )
    return (first, *(words for words, count in counted.items() if count))


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("reading images needs pillow: pip install 'bicore[images]'.") from error
    return Image


@contextmanager
def _opened(path: Path, pillow: Any) -> Iterator[Any]:
    """An image whose size is known and whose pixels are not decoded yet."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(path, formats=FORMATS) as image:
                yield image
    except InputError:
        raise
    except (pillow.DecompressionBombWarning, pillow.DecompressionBombError) as error:
        raise InputError(
            f"{path} has more than the {pillow.MAX_IMAGE_PIXELS} pixels that Pillow opens; bring "
            "it to a smaller size."
        ) from error
    except Exception as error:  # a damaged image fails in any number of ways
        words = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path} cannot be decoded as an image ({words}); mend or remove it."
        ) from error


def _heading(path: Path, pillow: Any) -> _Heading:
    with _opened(path, pillow) as image:
        return _Heading(image.size, image.mode)


def _refuse_mixed(files: list[Path], headings: list[_Heading]) -> None:
    first = headings[0].size
    for path, one in zip(files, headings, strict=True):
        if one.size != first:
            raise InputError(
                f"{path} is {one.size[0]}×{one.size[1]} and {files[0]} is {first[0]}×{first[1]}; "
                "bring all images to one size."
            )


def _allow(reading: Reading, files: list[Path], heading: _Heading, colour: bool) -> None:
    """Headers tell what pixels will take, and nothing is decoded that does not fit."""
    width, height = heading.size
    numbers = len(files) * width * height * (3 if colour else 1)
    reading.allowance.need(
        numbers * (DECODED + COPIES * NUMBER), f"{len(files)} images of {width}×{height} pixels"
    )


def _decoded(files: list[Path], heading: _Heading, colour: bool, pillow: Any) -> Array:
    """All images in one array, with their channels last where they have colour."""
    width, height = heading.size
    channels = (3,) if colour else ()
    found = np.empty((len(files), height, width, *channels), dtype=np.float32)
    for path, place in zip(files, found, strict=True):
        with _opened(path, pillow) as image:
            image.load()
            place[...] = _pixels(image, colour)
    return found


def _pixels(image: Any, colour: bool) -> Array:
    """Grey, or red, green and blue in 0 … 1, without transparency.

    Grey images of more than eight bits keep all of them.
    """
    if image.mode.startswith("I"):
        grey = np.asarray(image, dtype=np.float32) / 65535
        return np.repeat(grey[:, :, None], 3, axis=2) if colour else grey
    if image.mode == "F":
        raise ValueError("floating-point pixels have no fixed range")
    plain = np.asarray(image.convert("RGB"), dtype=np.float32) / 255
    return plain if colour else plain[..., 0]


def _layout(folder: Path) -> _Layout:
    try:
        classes = [place for place in _inside(folder) if place.is_dir()]
        named = [path for place in classes for path in _inside(place) if _has_image_name(path)]
        files = [path for path in named if path.is_file()]
        deeper = sum(
            _is_image(path)
            for place in classes
            for below in _inside(place)
            if below.is_dir()
            for path in below.rglob("*")
        )
        outside = sum(_is_image(path) for path in _inside(folder))
    except PermissionError as error:
        raise InputError(
            f"{error.filename} cannot be read: no permission; change its mode or copy it."
        ) from error
    if not files and deeper:
        raise InputError(
            f"{folder} holds images deeper than {folder.name}/CLASS/IMAGE.png only; give the "
            f"folder whose subfolders are the classes, such as {classes[0]}."
        )
    if not files:
        raise InputError(
            f"{folder} holds no images in class folders; lay them out as "
            f"{folder.name}/CLASS/IMAGE.png."
        )
    for path in files:
        _refuse_other_letters(path)
    return _Layout(files, deeper, outside, len(named) - len(files))


def _inside(folder: Path) -> list[Path]:
    """What lies in a folder in the order of names, without what is hidden."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(_PASSED_OVER))


def _is_image(path: Path) -> bool:
    """Whether an entry is a regular file with the name of an image; a FIFO would block."""
    return _has_image_name(path) and path.is_file()


def _has_image_name(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(_PASSED_OVER)


def _refuse_other_letters(path: Path) -> None:
    """A name that is no UTF-8 can neither be a label nor be written to a table."""
    name = f"{path.parent.name}/{path.name}"
    try:
        name.encode()
    except UnicodeEncodeError as error:
        shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise InputError(
            f"{shown} is a name that is not UTF-8; rename the class folder or the file."
        ) from error
