"""A folder of images, with a subfolder per class or without labels."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError, import_extra
from bicore.sources.base import Source
from bicore.sources.reading import COPIES, NUMBER, Reading, unreadable_error

#: Pillow's modes without colour; those with I have more than eight bits.
GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")
CLEAR = ("RGBA", "LA", "PA")
ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
#: Formats to decode, for any file name: other decoders start other programs.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
#: The side to which images of different sizes are resized.
RESIZED = 32
#: Bytes of a decoded number, and of its copy with channels first.
DECODED = 2 * 4
#: Hidden files, and folders that archives of macOS leave next to their files.
_SKIPPED = (".", "__MACOSX")


def load_images(folder: Path, reading: Reading | None = None) -> Source:
    """Load the images in class folders, or those of a flat folder without labels, by name."""
    reading = reading or Reading()
    files, notes = _find(folder)
    files = files[: reading.limit]
    headings = []
    for path in files:
        with _open(path) as image:
            headings.append((image.size, image.mode))
    sizes = {size for size, _ in headings}
    side = reading.resize or RESIZED
    alike = len(sizes) == 1 and reading.resize is None
    width, height = size = min(sizes) if alike else (side, side)
    if sizes != {size}:
        count = f"{len(sizes)} sizes" if len(sizes) > 1 else "one size"
        words = f"images of {count} are resized to {side}×{side} pixels without keeping proportions"
        notes.append(f"{words}; --resize N chooses another size")
    colour = any(mode not in GREY for _, mode in headings)
    shape = (len(files), height, width, 3) if colour else (len(files), height, width)
    needed = int(np.prod(shape)) * (DECODED + COPIES * NUMBER)
    needed += max(wide * high for (wide, high), _ in headings) * DECODED
    reading.allowance.require(needed, f"{len(files)} images of {width}×{height} pixels")
    pixels = np.empty(shape, dtype=np.float32)
    for path, place in zip(files, pixels, strict=True):
        with _open(path) as image:
            image.load()
            place[...] = _pixels(image, colour, size)
    x = pixels.transpose(0, 3, 1, 2) if colour else pixels[:, None]
    names = [str(path.relative_to(folder)) for path in files]
    labels = None if files[0].parent == folder else [path.parent.name for path in files]
    table = {"file": names} | ({} if labels is None else {"label": labels})
    place = "no class folders" if labels is None else f"{len(set(labels))} class folders"
    first = f"{len(files)} {'colour' if colour else 'grey'} images of {width}×{height} in {place}"
    clear = sum(mode in CLEAR for _, mode in headings)
    alpha = [f"{clear} images have an alpha channel, which was removed"] if clear else []
    data = Dataset(np.ascontiguousarray(x), None if labels is None else np.array(labels))
    found = (first, *alpha, *notes)
    return Source(folder.name, data, "standard", found, images=pixels, table=table, root=folder)


def copy_images(source: Source, indices: Array, out: Path) -> None:
    """Copy chosen images to CLASS folders below a new folder; all or nothing."""
    assert source.root is not None
    temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
    try:
        for row in indices.tolist():
            name = source.table["file"][row]
            (temporary / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(source.root / name, temporary / name)
        temporary.chmod(0o755)
        os.rename(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open an image and decode it later; errors name the file."""
    Image = import_extra("PIL.Image", "reading images needs pillow", "'bicore[images]'")
    bombs = (Image.DecompressionBombWarning, Image.DecompressionBombError)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=FORMATS) as image:
                yield image
    except Exception as error:  # a damaged image can raise any error
        words = (str(error).splitlines() or [type(error).__name__])[0]
        what = f"{path} cannot be decoded as an image ({words}); fix or remove it."
        if isinstance(error, bombs):
            most = f"the {Image.MAX_IMAGE_PIXELS} pixels that Pillow opens"
            what = f"{path} has more than {most}; bring it to a smaller size."
        raise InputError(what) from error


def _pixels(image: Any, colour: bool, size: tuple[int, int]) -> Array:
    """Return grey, or red, green and blue in 0 … 1, without transparency.

    Grey images of more than eight bits keep all of them.
    """
    from PIL import Image

    if image.mode == "F":
        raise ValueError("floating-point pixels have no fixed range")
    deep = image.mode.startswith("I")
    plain = Image.fromarray(np.asarray(image, np.float32)) if deep else image.convert("RGB")
    if plain.size != size:
        plain = plain.resize(size, Image.Resampling.BILINEAR)
    found = np.asarray(plain, dtype=np.float32) / (65535 if deep else 255)
    if deep:
        return np.repeat(found[:, :, None], 3, axis=2) if colour else found
    return found if colour else found[..., 0]


def _find(folder: Path) -> tuple[list[Path], list[str]]:
    """Find the images in class folders, or else in the folder, with notes on others."""
    try:
        classes = [place for place in _inside(folder) if place.is_dir()]
        named = [one for place in classes for one in _inside(place) if _has_image_name(one)]
        files = [path for path in named if path.is_file()]
        below = [one for place in classes for one in _inside(place) if one.is_dir()]
        deeper = sum(_is_image(path) for place in below for path in place.rglob("*"))
        outside = [path for path in _inside(folder) if _has_image_name(path)]
    except PermissionError as error:
        raise unreadable_error(Path(error.filename), "folder", error) from error
    if not files and not deeper:  # a flat folder: no labels
        named, outside = outside, []
        files = [path for path in named if path.is_file()]
    if not files:
        layout = f"{folder.resolve().name}/CLASS/IMAGE.png"
        words = f"no images; lay them out as {layout}, or directly in it if they have no labels"
        if deeper:
            words = f"images deeper than {layout} only; give a folder such as {classes[0]}"
        raise InputError(f"{folder} holds {words}.")
    for path in files:
        _refuse_other_letters(path)
    counted = {
        "images lie deeper than FOLDER/CLASS/IMAGE and are skipped": deeper,
        "images lie in no class folder and are skipped": sum(map(Path.is_file, outside)),
        "entries named like images are not regular files and are skipped": len(named) - len(files),
    }
    return files, [f"{count} {words}" for words, count in counted.items() if count]


def _inside(folder: Path) -> list[Path]:
    """List the entries of a folder by name, without hidden ones."""
    return sorted(path for path in folder.iterdir() if not path.name.startswith(_SKIPPED))


def _is_image(path: Path) -> bool:
    """Whether an entry is a regular file with an image's name; reading a FIFO would block."""
    return _has_image_name(path) and path.is_file()


def _has_image_name(path: Path) -> bool:
    return path.suffix.lower() in ENDINGS and not path.name.startswith(_SKIPPED)


def _refuse_other_letters(path: Path) -> None:
    """Refuse a name that is not UTF-8, which could not be a label or a cell of a table."""
    name = f"{path.parent.name}/{path.name}"
    shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    if shown != name:
        fix = "rename the class folder or the file"
        raise InputError(f"{shown} is a name that is not UTF-8; {fix}.")
