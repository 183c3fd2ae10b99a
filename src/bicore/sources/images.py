"""A folder of images with a subfolder for each class."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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
#: Formats that are decoded, whatever a file is called: other decoders start other programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
#: Bytes of a decoded number, and of its copy in the order of channels.
DECODED = 2 * 4
#: Hidden files, and folders that archives of macOS leave next to their files.
_SKIPPED = (".", "__MACOSX")


def load_images(folder: Path, reading: Reading | None = None) -> Source:
    """Load every image in the class folders by name; grey if all are. All must have one size."""
    reading = reading or Reading()
    files, notes = _find(folder)
    files = files[: reading.limit]
    headings = []
    for path in files:
        with _open(path) as image:
            headings.append((image.size, image.mode))
    (width, height), _ = headings[0]
    for path, (size, _) in zip(files, headings, strict=True):
        if size != (width, height):
            raise InputError(
                f"{path} is {size[0]}×{size[1]} and {files[0]} is {width}×{height}; bring all "
                "images to one size."
            )
    colour = any(mode not in GREY for _, mode in headings)
    shape = (len(files), height, width, 3) if colour else (len(files), height, width)
    size = int(np.prod(shape)) * (DECODED + COPIES * NUMBER)
    reading.allowance.need(size, f"{len(files)} images of {width}×{height} pixels")
    pixels = np.empty(shape, dtype=np.float32)
    for path, place in zip(files, pixels, strict=True):
        with _open(path) as image:
            image.load()
            place[...] = _pixels(image, colour)
    x = pixels.transpose(0, 3, 1, 2) if colour else pixels[:, None]
    labels = [path.relative_to(folder).parts[0] for path in files]
    table = Table(["file", "label"], [[str(path.relative_to(folder)) for path in files], labels])
    first = (
        f"{len(files)} {'colour' if colour else 'grey'} images of {width}×{height} in "
        f"{len(set(labels))} class folders"
    )
    clear = sum(mode in CLEAR for _, mode in headings)
    alpha = [f"{clear} images have an alpha channel, which was left out"] if clear else []
    data = Dataset(np.ascontiguousarray(x), np.array(labels))
    found = (first, *alpha, *notes)
    return Source(folder.name, data, "standard", found, images=pixels, table=table)


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open an image, whose pixels are decoded later; errors name the file."""
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("reading images needs pillow: pip install 'bicore[images]'.") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                yield image
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise InputError(
            f"{path} has more than the {Image.MAX_IMAGE_PIXELS} pixels that Pillow opens; bring "
            "it to a smaller size."
        ) from error
    except Exception as error:  # a damaged image fails in any number of ways
        words = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path} cannot be decoded as an image ({words}); fix or remove it."
        ) from error


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


def _find(folder: Path) -> tuple[list[Path], list[str]]:
    """Find the images in class folders, with notes on images that lie elsewhere."""
    try:
        classes = [place for place in _inside(folder) if place.is_dir()]
        named = [one for place in classes for one in _inside(place) if _has_image_name(one)]
        files = [path for path in named if path.is_file()]
        below = [one for place in classes for one in _inside(place) if one.is_dir()]
        deeper = sum(_is_image(path) for place in below for path in place.rglob("*"))
        outside = sum(_is_image(path) for path in _inside(folder))
    except PermissionError as error:
        raise InputError(
            f"{error.filename} cannot be read: no permission; change its mode or copy it."
        ) from error
    if not files:
        layout = f"{folder.resolve().name}/CLASS/IMAGE.png"
        words = f"no images in class folders; lay them out as {layout}"
        if deeper:
            words = f"images deeper than {layout} only; give a folder such as {classes[0]}"
        raise InputError(f"{folder} holds {words}.")
    for path in files:
        _refuse_other_letters(path)
    counted = {
        "images lie deeper than FOLDER/CLASS/IMAGE and are left out": deeper,
        "images lie in no class folder and are left out": outside,
        "entries named like images are not regular files and are skipped": len(named) - len(files),
    }
    return files, [f"{count} {words}" for words, count in counted.items() if count]


def _inside(folder: Path) -> list[Path]:
    """The entries of a folder by name, without hidden ones."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(_SKIPPED))


def _is_image(path: Path) -> bool:
    """Whether an entry is a regular file with the name of an image; a FIFO would block."""
    return _has_image_name(path) and path.is_file()


def _has_image_name(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(_SKIPPED)


def _refuse_other_letters(path: Path) -> None:
    """Refuse a name that is not UTF-8: it can be neither a label nor written to a table."""
    name = f"{path.parent.name}/{path.name}"
    try:
        name.encode()
    except UnicodeEncodeError as error:
        shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise InputError(
            f"{shown} is a name that is not UTF-8; rename the class folder or the file."
        ) from error
