"""Damaged and unusual folders of images, through the command."""

import json
import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from tests.commands import assert_refused, says

WORDS = ("select", "--method", "uniform", "--size", "2", "--json", "pictures")


def picture(path, number=0, size=(5, 5)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 255, size, dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def folder(tmp_path):
    for number in range(4):
        picture(tmp_path / "pictures" / "ab"[number % 2] / f"{number}.png", number)
    return tmp_path / "pictures"


def large(path, width, height):
    """A PNG of zeros by its header, of a few bytes."""

    def chunk(kind, content):
        return (
            struct.pack(">I", len(content))
            + kind
            + content
            + struct.pack(">I", zlib.crc32(kind + content))
        )

    begin = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", begin) + chunk(b"IDAT", zlib.compress(bytes(99)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body + chunk(b"IEND", b""))


def test_6_images_beyond_the_limit_are_refused_by_their_headers(command, tmp_path):
    for label in "ab":
        large(tmp_path / "pictures" / label / "1.png", 9000, 9000)
    assert_refused(
        command(*WORDS, "--memory", "1GB"),
        "2 images of 9000×9000 pixels would take 12.3 GB, and the memory limit is 1 GB",
    )


def test_8_an_image_above_pillows_limit(command, folder):
    for side in (12_000, 30_000):  # of which Pillow warns, and which it refuses
        large(folder / "a" / "0.png", side, side)
        assert_refused(command(*WORDS), "0.png has more than the 89478485 pixels that Pillow opens")


def test_8_a_class_folder_that_is_not_utf8(command, folder):
    name = os.fsdecode(b"caf\xe9")
    try:
        (folder / "a").rename(folder / name)
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    result = command(*WORDS, "--out", "picks.csv")
    assert_refused(result, "caf\\xe9/0.png is a name that is not UTF-8; rename the class folder")


def test_9_macos_files_are_skipped(command, folder):
    (folder / "a" / "._0.png").write_bytes(b"\0\5\x16\7")
    (folder / "__MACOSX" / "a").mkdir(parents=True)
    (folder / "__MACOSX" / "a" / "._0.png").write_bytes(b"\0\5\x16\7")
    says(command(*WORDS), "4 grey images of 5×5 in 2 class folders")


def test_9_images_in_other_folders_are_counted(command, folder):
    picture(folder / "a" / "more" / "deep" / "1.png")
    picture(folder / "2.png")
    picture(folder / "3.png")
    says(
        command(*WORDS),
        "4 grey images",
        "1 images lie deeper than FOLDER/CLASS/IMAGE and are skipped",
        "2 images lie in no class folder and are skipped",
    )


def test_9_a_folder_of_folders_of_classes_names_the_one_to_give(command, folder):
    folder.rename(folder.parent / "train")
    (folder.parent / "pictures").mkdir()
    (folder.parent / "train").rename(folder / "train")
    assert_refused(
        command(*WORDS), "deeper than pictures/CLASS/IMAGE.png only", "such as pictures/train"
    )


def test_8_other_files_called_images_start_no_other_program(command, folder):
    (folder / "a" / "0.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 5 5\n%%EndComments\n"
    )
    assert_refused(command(*WORDS), "0.png cannot be decoded as an image (cannot identify")


def test_m7_a_fifo_and_a_device_in_an_image_folder_are_skipped(command, folder):
    os.mkfifo(folder / "a" / "pipe.png")
    (folder / "b" / "zeros.png").symlink_to("/dev/zero")
    os.mkfifo(folder / "outside.png")
    result = command(*WORDS)
    says(result, "2 entries named like images")
    assert json.loads(result.stdout)["n"] == 4


def test_l10_images_of_several_sizes_are_resized_and_chosen_ones_copied(command, folder):
    picture(folder / "a" / "large.png", 7, (40, 64))
    Image.fromarray(np.full((9, 7), 40_000, np.uint16)).save(folder / "b" / "deep.png")
    says(command(*WORDS), "6 grey images of 32×32", "3 sizes are resized")
    result = command(*WORDS[:-2], *("pictures", "--resize", "16", "--out", "chosen"))
    says(result, "6 grey images of 16×16")
    copies = sorted(folder.with_name("chosen").glob("*/*.png"))
    assert len(copies) == 2
    for copy in copies:
        assert copy.read_bytes() == (folder / copy.parent.name / copy.name).read_bytes()
        assert f"{copy.parent.name}/{copy.name}" in result.stdout
    assert_refused(command(*WORDS, "--out", "chosen"), "chosen exists")
    assert_refused(command(*WORDS, "--resize", "0"), "resize")
    words = ("select", "digits", "--size", "2", "--quiet", "--out", "digits-chosen")
    assert_refused(command(*words), "digits")
