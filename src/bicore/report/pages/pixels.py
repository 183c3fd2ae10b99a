"""Small images as text that a browser shows: PNG files in data addresses, without a library."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

from bicore.data import Array

#: The longest side of an image on the page; larger ones are averaged over blocks.
LONGEST = 64
#: PNG's numbers for grey and for red, green and blue, by the dimensions of an image.
COLOURS = {2: 0, 3: 2}


def data_address(image: Array) -> str:
    """An image (height, width[, 3]) in 0 … 1 as an address that holds it."""
    shades = np.clip(np.nan_to_num(thumbnail(image)), 0, 1)
    return "data:image/png;base64," + base64.b64encode(png((shades * 255).round())).decode()


def thumbnail(image: Array) -> Array:
    """The image itself, or the means of square blocks where it is larger than the page shows."""
    step = -(-max(image.shape[:2]) // LONGEST)
    if step == 1:
        return image
    tall, wide = (max(1, side // step) for side in image.shape[:2])
    cut = image[: tall * step, : wide * step]
    rows = np.array_split(cut, tall, axis=0)
    return np.stack([_means(np.array_split(row, wide, axis=1)) for row in rows])


def _means(blocks: list[Array]) -> Array:
    return np.stack([block.mean(axis=(0, 1)) for block in blocks])


def png(shades: Array) -> bytes:
    """A PNG file of shades 0 … 255."""
    tall, wide = shades.shape[:2]
    # every line begins with the number of its filter: none
    lines = b"".join(b"\0" + line.astype(np.uint8).tobytes() for line in shades)
    head = struct.pack(">IIBBBBB", wide, tall, 8, COLOURS[shades.ndim], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, body) for name, body in parts)


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
