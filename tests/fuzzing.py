"""One small file of every format, and ways to damage it."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import scipy.sparse
from PIL import Image

ROWS = 12
X = np.random.default_rng(0).normal(size=(ROWS, 3)).round(3)
Y = np.arange(ROWS) % 2
TABLE = ("--target", "y", "--drop-missing-target")


@dataclass(frozen=True)
class Case:
    """A source: the file that is spoilt, companion files, and the arguments of the command."""

    spoilt: str
    content: Callable[[], bytes]
    words: tuple[str, ...]
    companions: Callable[[], dict[str, bytes]] = dict
    method: tuple[str, ...] = ("--method", "uniform")


def csv_text() -> bytes:
    rows = ["id,a,b,when,city,y"]
    for row, (a, b, _) in enumerate(X.tolist()):
        city = '"Bern, or ""so"""' if row % 2 else "Oslo"
        rows.append(f"{row},{a},{str(b).replace('.', '_')},2020-01-{row + 1:02},{city},{Y[row]}")
    return ("\n".join(rows) + "\n").encode()


def json_text() -> bytes:
    rows = [
        {
            "a": a,
            "b": None if row % 5 == 0 else b,
            "t": f"1{row}:00",
            "z": row % 2 == 0,
            "y": "pq"[row % 2],
        }
        for row, (a, b, _) in enumerate(X.tolist())
    ]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def typed_table() -> pyarrow.Table:
    return pyarrow.table(
        {
            "a": X[:, 0],
            "v": pyarrow.array(X.tolist()),
            "when": pyarrow.array(range(ROWS), pyarrow.timestamp("ms")),
            "city": pyarrow.array(["Bern", "Oslo", None] * 4).dictionary_encode(),
            "word": [f"word {row}" for row in range(ROWS)],
            "truth": [row % 2 == 0 for row in range(ROWS)],
            "y": Y,
        }
    )


def writer(write: Callable[[io.BytesIO], object]) -> Callable[[], bytes]:
    """What some writer writes to a file."""

    def content() -> bytes:
        file = io.BytesIO()
        write(file)
        return file.getvalue()

    return content


def ipc_stream(file: io.BytesIO) -> None:
    with pyarrow.ipc.new_stream(file, typed_table().schema) as writer:
        writer.write_table(typed_table())


def picture(form: str, mode: str = "L") -> Callable[[], bytes]:
    pixels = np.random.default_rng(1).integers(0, 255, (6, 6, 3), dtype=np.uint8)
    return writer(lambda file: Image.fromarray(pixels).convert(mode).save(file, form))


def images(form: str, ending: str, mode: str = "L") -> Case:
    plain = picture("PNG", mode)
    others = {f"pictures/{label}/{label}.png": plain for label in "ab"}
    return Case(
        f"pictures/a/x.{ending}",
        picture(form, mode),
        ("pictures",),
        lambda: {name: content() for name, content in others.items()},
    )


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder: Path, split: str, pixels: np.ndarray, labels: np.ndarray) -> None:
    """Packed files of a split, as torchvision stores them."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images-idx3", pixels), ("labels-idx1", labels)):
        content = gzip.compress(idx(array.astype(np.uint8)))
        (raw / f"{split}-{kind}-ubyte.gz").write_bytes(content)


def write_cifar(folder: Path, name: str, pixels: np.ndarray, labels: np.ndarray) -> None:
    """A batch of CIFAR-10, as torchvision stores it."""
    batches = folder / "cifar-10-batches-py"
    batches.mkdir(parents=True, exist_ok=True)
    content = {"data": pixels, "labels": labels.tolist()}
    (batches / name).write_bytes(pickle.dumps(content, protocol=2))


def mnist(packed: bool) -> Case:
    def content() -> bytes:
        plain = idx(np.zeros((ROWS, 28, 28), np.uint8))
        return gzip.compress(plain) if packed else plain

    name = f"MNIST/raw/train-images-idx3-ubyte{'.gz' if packed else ''}"
    labels = {"MNIST/raw/train-labels-idx1-ubyte": idx(Y.astype(np.uint8))}
    return Case(name, content, ("mnist", "--data", "."), lambda: labels)


def cifar() -> Case:
    def batch() -> bytes:
        held = {"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1]}
        return pickle.dumps(held, protocol=2)

    names = [f"cifar-10-batches-py/data_batch_{number}" for number in range(1, 6)]
    return Case(
        names[0], batch, ("cifar10", "--data", "."), lambda: {name: batch() for name in names[1:]}
    )


def sparse(file: io.BytesIO) -> None:
    matrix = scipy.sparse.csr_array(X * (X > 0))
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    np.savez_compressed(file, **parts, shape=matrix.shape, format="csr", y=Y)


def zstd(content: bytes) -> bytes:
    return pyarrow.Codec("zstd").compress(content, asbytes=True)


def encrypt(archive: bytes) -> bytes:
    """An archive whose members say that they are encrypted: their own headers, and the directory."""
    content = bytearray(archive)
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.find(mark)
        while at >= 0:
            content[at + place] |= 1
            at = content.find(mark, at + 4)
    return bytes(content)


def zip_table() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.csv", csv_text())
    return file.getvalue()


def table(name: str, content: Callable[[], bytes]) -> Case:
    return Case(name, content, (name, *TABLE))


def parquet(file: io.BytesIO) -> None:
    pyarrow.parquet.write_table(typed_table(), file)


CASES = {
    "csv": table("t.csv", csv_text),
    "txt": table("t.txt", lambda: csv_text().replace(b",", b"|")),
    "tsv": table("t.tsv", lambda: csv_text().replace(b",", b"\t")),
    "csv.gz": table("t.csv.gz", lambda: gzip.compress(csv_text())),
    "csv.bz2": table("t.csv.bz2", lambda: bz2.compress(csv_text())),
    "csv.zst": table("t.csv.zst", lambda: zstd(csv_text())),
    "jsonl": table("t.jsonl", json_text),
    "parquet": table("t.parquet", writer(parquet)),
    "json": table(
        "t.json", lambda: json.dumps(list(map(json.loads, json_text().splitlines()))).encode()
    ),
    "csv.zip": table("t.csv.zip", zip_table),
    "parquet in parts": Case(
        "t.parquet", writer(parquet), ("t.parquet", "--target", "y"), method=("--passes",)
    ),
    "feather": table(
        "t.feather", writer(lambda file: pyarrow.feather.write_feather(typed_table(), file))
    ),
    "feather plain": table(
        "t.feather",
        writer(
            lambda file: pyarrow.feather.write_feather(
                typed_table(), file, compression="uncompressed"
            )
        ),
    ),
    "arrow": table("t.arrow", writer(ipc_stream)),
    "npz": Case("t.npz", writer(lambda file: np.savez(file, x=X, y=Y)), ("t.npz",)),
    "npz packed": Case(
        "t.npz", writer(lambda file: np.savez_compressed(file, x=X, y=Y.astype(str))), ("t.npz",)
    ),
    "npz sparse": Case("t.npz", writer(sparse), ("t.npz",)),
    "npy": Case(
        "x.npy",
        writer(lambda file: np.save(file, X)),
        ("x.npy", "--labels", "y.npy"),
        lambda: {"y.npy": writer(lambda file: np.save(file, Y))()},
    ),
    "png": images("PNG", "png"),
    "png of colours": images("PNG", "png", "RGB"),
    "jpeg": images("JPEG", "jpg"),
    "gif": images("GIF", "gif"),
    "bmp": images("BMP", "bmp"),
    "tiff": images("TIFF", "tif"),
    "webp": images("WEBP", "webp", "RGB"),
    "ppm": images("PPM", "pgm"),
    "mnist": mnist(packed=False),
    "mnist packed": mnist(packed=True),
    "cifar10": cifar(),
}

#: One way to spoil bytes: what is done, where (a share of the length), with which byte, how often.
Blow = tuple[str, float, int, int]
BLOWS = ("flip", "set", "cut", "drop", "insert", "repeat", "zero")


def apply_blows(content: bytes, blows: Sequence[Blow]) -> bytes:
    """The bytes after some blows."""
    held = bytearray(content)
    for kind, share, byte, count in blows:
        place = int(share * len(held))
        if kind == "flip" and place < len(held):
            held[place] ^= 1 << (byte % 8)
        elif kind == "set":
            held[place : place + count] = bytes([byte]) * len(held[place : place + count])
        elif kind == "cut":
            del held[place:]
        elif kind == "drop":
            del held[place : place + count]
        elif kind == "insert":
            held[place:place] = bytes([byte]) * count
        elif kind == "repeat":
            held[place:place] = held[place : place + 16 * count]
        elif kind == "zero":
            held[place : place + count] = bytes(len(held[place : place + count]))
    return bytes(held)
