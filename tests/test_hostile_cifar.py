"""Hand-made CIFAR-10 files that attack the reader: memory, types, shapes and names."""

import multiprocessing
import os
import pickle
import struct
import tracemalloc

import numpy as np
import pytest

from bicore.errors import InputError, MemoryLimitError
from bicore.sources.reading import Allowance
from bicore.sources.standard_sets import cifar10_pixels

#: Bytes that reading a hostile file of a few kilobytes may take.
ALLOCATED = 5_000_000
PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)


def text(words):
    return b"X" + struct.pack("<I", len(words)) + words.encode()


def raw(content):
    return b"B" + struct.pack("<I", len(content)) + content


def integer(number):
    return b"\x8a\x08" + struct.pack("<q", number)


def symbol(module, name):
    return f"c{module}\n{name}\n".encode()


def tuple_of(*items):
    return b"(" + b"".join(items) + b"t"


RECONSTRUCT = symbol("numpy.core.multiarray", "_reconstruct")
NDARRAY = symbol("numpy", "ndarray")
ENCODE = symbol("_codecs", "encode")
SCALAR = symbol("numpy.core.multiarray", "scalar")


def dtype(code="u1", order="|", flags=0):
    made = symbol("numpy", "dtype") + tuple_of(text(code), b"K\x00", b"K\x01") + b"R"
    state = tuple_of(
        b"K\x03", text(order), b"NNN", integer(-1), integer(-1), struct.pack("<BB", 75, flags)
    )
    return made + state + b"b"


def empty(*shape):
    return RECONSTRUCT + tuple_of(NDARRAY, tuple_of(*map(integer, shape)), raw(b"b")) + b"R"


def array(shape=(2, 3072), kind=None, data=None):
    content = raw(PIXELS.tobytes() if data is None else data)
    state = tuple_of(b"K\x01", tuple_of(*map(integer, shape)), kind or dtype(), b"\x89", content)
    return empty(0) + state + b"b"


def batch(data=None, labels=b"](K\x03K\x08e"):
    return b"\x80\x03}(" + text("data") + (data or array()) + text("labels") + labels + b"u."


def read(folder, content, **options):
    (folder / "cifar-10-batches-py").mkdir(exist_ok=True)
    (folder / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    return cifar10_pixels(folder, "test", **options)


HOSTILE = {
    "huge shape": batch(array((2**62, 3072))),
    "overflowing shape": batch(array((2**61, 2**61, 3072))),
    "negative shape": batch(array((-1, 3072))),
    "shape of another size": batch(array((3, 3072))),
    "array without values": batch(empty(2, 3072)),
    "new array": batch(NDARRAY + tuple_of(tuple_of(b"K\x02", b"M\x00\x0c")) + b"\x81"),
    "other numbers": batch(array((2, 3072), dtype("f8", "<"), bytes(8 * 6144))),
    "void": batch(array((2, 3072), dtype("V1"))),
    "too few labels": batch(labels=b"](K\x03e"),
    "label 10": batch(labels=b"](K\x03K\x0ae"),
    "label -1": batch(labels=b"](K\x03" + integer(-1) + b"e"),
    "label of text": batch(labels=b"](K\x03" + text("8") + b"e"),
    "huge label": batch(labels=b"](K\x03\x8b" + struct.pack("<i", 50) + b"\x7f" * 50 + b"e"),
    "object scalar": batch(
        labels=b"](K\x03" + SCALAR + tuple_of(dtype("O8"), raw(bytes(8))) + b"Re"
    ),
    "tuple as key": b"\x80\x03}(" + tuple_of(b"N") + b"Nu.",
    "bytes by a number": batch(array(data=b"")[:-7] + b"J\xff\xff\xff\x7ftb"),
    "other codec": batch(
        array((2, 3072), data=b"").replace(
            raw(b""), ENCODE + tuple_of(text("a"), text("zlib")) + b"R"
        )
    ),
    "code": batch(symbol("posix", "system") + tuple_of(text("true")) + b"R"),
    "name of two lines": b"\x80\x04" + text("a\nb") + text("c") + b"\x93.",
    "stack underflow": b"\x80\x03\x87.",
    "not a dict": b"\x80\x03K\x01.",
    "cut": batch()[:-20],
    "nothing": b"",
}
#: Small files that make Python's unpickler or NumPy take much memory.
GREEDY = {
    "3.2 GB array": batch(empty(1_041_667, 3072), b"]"),
    "memo": b"\x80\x03}r" + struct.pack("<I", 2**24) + b".",
    "bytes": b"\x80\x03B" + struct.pack("<I", 2**31 - 1) + b".",
    "bytearray": b"\x80\x05\x96" + struct.pack("<Q", 2**32) + b".",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 2**32) + b".",
    "encoded again and again": b"\x80\x03("
    + (ENCODE + b"q\x00" + text("a" * 100_000) + b"q\x01" + text("latin1") + b"q\x02\x86R")
    + b"h\x00h\x01h\x02\x86R" * 900
    + b"t.",
    "lists": b"\x80\x03(" + b"]" * 200_000 + b"t.",
}
STAND_INS = {
    "reconstruct": RECONSTRUCT,
    "ndarray": NDARRAY,
    "dtype": symbol("numpy", "dtype"),
    "encode": ENCODE,
    "scalar": SCALAR,
    "array made": empty(0),
    "dtype made": dtype(),
    "text made": ENCODE + tuple_of(text("a"), text("latin1")) + b"R",
    "scalar made": SCALAR + tuple_of(dtype(), raw(b"\x01")) + b"R",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_h1_hostile_files_are_refused(tmp_path, content):
    with pytest.raises(InputError) as raised:
        read(tmp_path, content)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("stand_in", STAND_INS.values(), ids=STAND_INS)
@pytest.mark.parametrize("state", [b"N", b"}" + text("state") + b"Ns", tuple_of(b"N" * 5)])
def test_h1_a_state_for_any_stand_in_is_inert(tmp_path, stand_in, state):
    """Neither a name nor a recorded call can be changed into something that is run."""
    slots = tuple_of(b"N", b"}" + text("__call__") + b"Ns")
    for given in (state, slots):
        with pytest.raises(InputError):
            read(tmp_path, batch(stand_in + given + b"b"))
    assert len(read(tmp_path, batch())[0]) == 2


CRASHING = {
    "pointers": batch(array((2, 3072), dtype("O8"), b"\x41" * 8 * 6144)),
    "deep key": b"\x80\x03})" + b"\x85" * 3_000_000 + b"Ns.",
}


def refuse(folder, content):
    """Read a file in a process of its own; refused, it ends with code 7."""
    try:
        read(folder, content)
    except InputError:
        os._exit(7)


@pytest.mark.parametrize("content", CRASHING.values(), ids=CRASHING)
def test_h1_no_file_crashes_the_process(tmp_path, content):
    context = multiprocessing.get_context("fork")
    process = context.Process(target=refuse, args=(tmp_path, content))
    process.start()
    process.join()
    assert process.exitcode == 7


@pytest.mark.parametrize("content", GREEDY.values(), ids=GREEDY)
def test_h2_small_files_take_little_memory(tmp_path, content):
    tracemalloc.start()
    try:
        with pytest.raises(InputError):
            read(tmp_path, content)
        assert tracemalloc.get_traced_memory()[1] < ALLOCATED
    finally:
        tracemalloc.stop()


def test_h2_the_reader_keeps_to_the_memory_limit(tmp_path):
    with pytest.raises(MemoryLimitError):
        read(tmp_path, batch(), allowance=Allowance(50_000))
    assert len(read(tmp_path, batch(), allowance=Allowance(200_000))[0]) == 2


def python_2():
    """A file as Python 2 wrote the official ones: text for bytes, and NumPy's old name."""
    kind = dtype().replace(text("u1"), b"U\x02u1").replace(text("|"), b"U\x01|")
    pixels = b"T" + struct.pack("<I", PIXELS.size) + PIXELS.tobytes()
    data = array(kind=kind).replace(raw(PIXELS.tobytes()), pixels)
    head = b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03U\x06labels"
    return head + b"](K\x03K\x08eU\x04data" + data + b"U\tfilenames](U\x01aU\x01beu."


@pytest.mark.parametrize("protocol", range(6))
def test_h1_plain_files_are_read(tmp_path, protocol):
    held = {"data": PIXELS, "labels": [3, 8], "filenames": ["a", "b"]}
    for content in (pickle.dumps(held, protocol), python_2()):
        images, found = read(tmp_path, content)
        np.testing.assert_array_equal(images.reshape(2, -1), PIXELS)
        assert found.tolist() == [3, 8]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ["columns", "numpy labels", "numpy label"])
def test_h1_other_forms_are_refused_and_never_misread(tmp_path, protocol, name):
    held = {"data": PIXELS, "labels": [3, 8]}
    forms = {"columns": {"data": np.asfortranarray(PIXELS)}}
    forms |= {
        "numpy labels": {"labels": np.array([3, 8])},
        "numpy label": {"labels": [np.int64(3), 8]},
    }
    with pytest.raises(InputError, match="CIFAR-10 file"):
        read(tmp_path, pickle.dumps({**held, **forms[name]}, protocol))


def test_h1_strides_of_a_call_are_not_followed(tmp_path):
    strides = tuple_of(tuple_of(b"K\x02", b"M\x00\x0c"), dtype(), raw(PIXELS.tobytes()))
    strides = strides[:-1] + integer(3072) + tuple_of(integer(-3072), b"K\x01") + b"t"
    images, _ = read(tmp_path, batch(NDARRAY + strides + b"R"))
    np.testing.assert_array_equal(images.reshape(2, -1), PIXELS)
