"""A folder of images with a subfolder a class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bicore.data import Array, Dataset
from bicore.errors import InputError
from bicore.sources.base import Source
from bicore.sources.tables import Table

#: Pillow's modes without colour; those that begin with I have more than eight bits.
GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")
ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


def image_folder(folder: Path) -> Source:
    """Every image below the class folders, in order of name; grey when all of them are.

    All must be of one size.
    """
    pillow = _pillow()
    files = _files(folder)
    pixels, colour, clear = _decoded(files, pillow)
    if not colour:
        pixels = pixels[..., 0]
    x = pixels[:, None] if not colour else pixels.transpose(0, 3, 1, 2)
    y = np.array([path.parent.name for path in files])
    notes: tuple[str, ...] = (
        f"{len(files)} {'colour' if colour else 'grey'} images of "
        f"{pixels.shape[2]}×{pixels.shape[1]} in {len(set(y))} class folders",
    )
    if clear:
        notes = (*notes, f"{clear} images have an alpha channel, which was left out")
    data = Dataset(np.ascontiguousarray(x), y)
    names = [str(path.relative_to(folder)) for path in files]
    table = Table(["file", "label"], [names, [path.parent.name for path in files]])
    return Source(folder.name, data, "standard", notes, images=pixels, table=table)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise InputError("reading images needs pillow: pip install 'bicore[images]'.") from error
    return Image


def _decoded(files: list[Path], pillow: Any) -> tuple[Array, bool, int]:
    """All images in one array, whether any has colour, and how many are transparent."""
    arrays: list[Array] = []
    colour = False
    clear = 0
    for path in files:
        try:
            with pillow.open(path) as image:
                image.load()
                colour = colour or image.mode not in GREY
                clear += image.mode in ("RGBA", "LA", "PA")
                pixels = _pixels(image)
        except (pillow.UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
            raise InputError(
                f"{path} cannot be decoded as an image ({error}); mend or remove it."
            ) from error
        if arrays and pixels.shape != arrays[0].shape:
            raise InputError(
                f"{path} is {_extent(pixels)} and {files[0]} is {_extent(arrays[0])}; bring all "
                "images to one size."
            )
        arrays.append(pixels)
    return np.stack(arrays), colour, clear


def _pixels(image: Any) -> Array:
    """Red, green and blue in 0 … 1, without transparency.

    Grey images of more than eight bits keep all of them.
    """
    if image.mode.startswith("I"):
        grey = np.asarray(image, dtype=np.float32) / 65535
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.mode == "F":
        raise ValueError("floating-point pixels have no fixed range")
    return np.asarray(image.convert("RGB"), dtype=np.float32) / 255


def _extent(pixels: Array) -> str:
    return f"{pixels.shape[1]}×{pixels.shape[0]}"


def _files(folder: Path) -> list[Path]:
    try:
        classes = sorted(
            place for place in folder.iterdir() if place.is_dir() and not place.name.startswith(".")
        )
        files = [
            path
            for place in classes
            for path in sorted(place.iterdir())
            if path.suffix.lower() in ENDINGS
        ]
    except PermissionError as error:
        raise InputError(
            f"{error.filename} cannot be read: no permission; change its mode or copy it."
        ) from error
    if not files:
        raise InputError(
            f"{folder} holds no images in class folders; lay them out as "
            f"{folder.name}/CLASS/IMAGE.png."
        )
    return files
