"""The command, through its entry point, with small files of every source."""

import csv
import io
import json
import os
import pickle
import subprocess
import sys
from dataclasses import is_dataclass
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from bicore import Coreset
from bicore.cli import options, show
from bicore.cli.show import _install_line
from tests import HANG
from tests.commands import assert_refused, assert_success
from tests.fuzzing import write_cifar, write_mnist
from tests.helpers import blobs

X = blobs(60).x
Y = blobs(60).y
FAST = ["--kernel", "rbf", "--inner-reg", "0.1"]
KEYS = "indices weights objective seconds size n method kernel loss inner_reg seed classes status"
KEYS = [*KEYS.split(), "message", "notes", "version"]


def make_table():
    rng = np.random.default_rng(0)
    rows = np.arange(60)
    return pd.DataFrame(
        {
            "age": np.where(rows == 3, np.nan, X[:, 0].round(4)),
            "city": np.where(
                rows == 5, "NA", np.array(["Bern", "Rome", "Oslo"])[rng.integers(3, size=60)]
            ),
            "name": [f"person {row}" for row in rows],
            "empty": "",
            "w": 1 + rows % 3,
            "label": np.array(["a", "b", "c"])[Y],
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One small file of every kind."""
    place = tmp_path_factory.mktemp("sources")
    np.savez(place / "data.npz", x=X, y=Y, w=np.linspace(1, 2, 60))
    np.save(place / "x.npy", X)
    np.save(place / "y.npy", Y)
    make_table().to_csv(place / "table.csv", index=False)
    make_table().drop(columns="empty").to_parquet(place / "table.parquet")
    for label in ("cat", "dog"):
        (place / "images" / label).mkdir(parents=True)
        for number in range(8):
            seed = number + 10 * (label == "dog")
            pixels = np.random.default_rng(seed).integers(0, 255, (9, 9), dtype=np.uint8)
            Image.fromarray(pixels).save(place / "images" / label / f"{number}.png")
    rng = np.random.default_rng(0)
    write_mnist(
        place / "torchvision", "train", rng.integers(0, 255, (40, 28, 28)), np.arange(40) % 10
    )
    for part in range(1, 6):
        pixels = rng.integers(0, 255, (8, 3072), dtype=np.uint8)
        write_cifar(place / "torchvision", f"data_batch_{part}", pixels, np.arange(8) % 4)
    return place


SOURCES = {
    "digits": ["digits", "--limit", "200"],
    "npz": ["data.npz"],
    "npz with weights": ["data.npz", "--sample-weight", "w"],
    "npy": ["x.npy", "--labels", "y.npy"],
    "csv": ["table.csv", "--target", "label"],
    "csv with weights": ["table.csv", "--target", "label", "--sample-weight", "w"],
    "parquet": ["table.parquet", "--target", "label"],
    "images": ["images"],
    "mnist": ["mnist", "--data", "torchvision"],
    "cifar10": ["cifar10", "--data", "torchvision", "--kernel", "linear"],
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_gives_clean_json(bicore, name, folder):
    words = [*SOURCES[name], "--size", "5", "--json"]
    result = assert_success(bicore("select", *FAST, *words, cwd=folder))
    answer = json.loads(result.stdout)
    assert list(answer) == KEYS
    assert len(set(answer["indices"])) == 5 == answer["size"] == len(answer["weights"])
    assert (answer["status"], answer["message"]) == ("complete", "")
    assert "features:" in result.stderr


def test_table_on_standard_input_prints_column_notes(bicore, folder):
    text = (folder / "table.csv").read_text()
    words = [*FAST, "--target", "label", "--json", "--size"]
    piped = bicore("select", "-", *words, "10%", input=text)
    named = bicore("select", "table.csv", *words, "6", cwd=folder)
    assert json.loads(piped.stdout)["indices"] == json.loads(named.stdout)["indices"]
    assert "numeric columns: age (1 missing → median), w" in piped.stderr
    assert "categorical columns: city (3 values)" in piped.stderr
    assert "excluded columns: name (" in piped.stderr
    assert "), empty (empty)" in piped.stderr


def test_awkward_tables_are_read_and_written_as_they_are(bicore, tmp_path):
    """Quotes, commas and line breaks inside cells, semicolons, a byte order mark, long cells, large
    integers as classes."""
    big = 10**17
    rows = [["text;1", "weight", "bicore_weight_1", "n", "label"]]
    rows += [
        [f'a "b", c\r\nd {i % 2}', 1, "x" * (200_000 if i == 0 else 1), i / 7, big + i % 3]
        for i in range(30)
    ]
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=";").writerows(rows)
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.getvalue().encode())
    words = [*FAST, "--target", "label", "--size", "3"]
    assert_success(bicore("select", "t.csv", *words, "--out", "PICKS.CSV", cwd=tmp_path))
    csv.field_size_limit(10**6)
    with open(tmp_path / "PICKS.CSV", newline="") as file:
        chosen = list(csv.DictReader(file))
    assert {row["text;1"] for row in chosen} <= {row[0] for row in rows[1:]}
    assert all(float(row["bicore_weight_2"]) == 1 for row in chosen)
    piped = bicore("select", "-", *words, "--json", cwd=tmp_path, input=text.getvalue())
    assert json.loads(piped.stdout)["classes"] == [big, big + 1, big + 2]
    assert_success(bicore("select", "t.csv", *words, "--out", "X.NPZ", cwd=tmp_path))
    assert len(Coreset.load(tmp_path / "X.NPZ")) == 3
    (tmp_path / "comma.csv").write_text(
        "a;b;label\n" + "".join(f"{i},5;{i};{i % 2}\n" for i in range(40))
    )
    commas = bicore("select", "comma.csv", *words, cwd=tmp_path).stderr
    assert "numeric columns: a (decimal commas), b" in commas


def test_deep_grey_images_keep_their_bits(tmp_path):
    from bicore.sources.images import load_images

    pixels = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    for label in "ab":
        (tmp_path / label).mkdir()
        Image.fromarray(pixels).save(tmp_path / label / "1.png")
        Image.fromarray(np.zeros((8, 8, 2), np.uint8), mode="LA").save(tmp_path / label / "2.png")
    source = load_images(tmp_path)
    assert source.data.x.shape == (4, 1, 8, 8)
    assert "2 images have an alpha channel, which was removed" in source.notes
    np.testing.assert_allclose(source.data.x[0, 0], pixels / 65535, rtol=1e-6)


def test_out_of_a_table_is_its_rows_with_a_weight_column(bicore, folder, tmp_path):
    for ending in ("csv", "parquet"):
        out = tmp_path / f"picks.{ending}"
        words = [*FAST, "--target", "label", "--size", "4", "--out", out, "--weighting", "learned"]
        assert_success(bicore("select", f"table.{ending}", *words, cwd=folder))
        found = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
        assert len(found) == 4
        assert (found["weight"] > 0).all()
        labels = make_table().set_index("name")["label"]
        assert found["label"].tolist() == labels[found["name"]].tolist()


def test_coreset_file_picture_show_and_continuation(bicore, folder, tmp_path):
    out = tmp_path / "picks.npz"
    picture = tmp_path / "picks.png"
    words = ["images", *FAST, "--size", "6", "--out", out, "--picture", picture]
    made = assert_success(bicore("select", *words, cwd=folder))
    assert f"written: {out}" in made.stdout
    assert Image.open(picture).size[0] > 200
    with np.load(out, allow_pickle=False) as stored:
        assert len(stored["indices"]) == 6
    shown = bicore("show", out)
    for words in (
        "6 of 16 rows",
        "feature scaling      standard",
        "To reproduce: bicore select images",
        "fingerprint",
    ):
        assert words in shown.stdout
    # point by point, a longer run begins as a shorter one does
    greedy = ("select", "images", *FAST, "--strategy", "greedy")
    bicore(*greedy, "--size", "6", "--out", out, "--force", cwd=folder)
    greedy = (*greedy, "--size", "9", "--json")
    whole = json.loads(bicore(*greedy, cwd=folder).stdout)
    continued = json.loads(bicore(*greedy, "--initial", out, cwd=folder).stdout)
    assert continued["indices"] == whole["indices"]
    other = ["digits", "--limit", "16", *FAST, "--size", "9", "--quiet", "--initial", out]
    assert_refused(bicore("select", *other), "selected from other data")


def test_scaling_is_decided_shown_and_stored(bicore, folder, tmp_path):
    words = ["select", "data.npz", *FAST, "--size", "3", "--out"]
    plain = bicore(*words, tmp_path / "a.npz", cwd=folder)
    assert "not scaled" in plain.stderr
    assert Coreset.load(tmp_path / "a.npz").details["scale"] == "none"
    scaled = bicore(*words, tmp_path / "b.npz", "--scale", "standard", "--quiet", cwd=folder)
    assert (scaled.stdout, scaled.stderr) == ("", "")
    assert Coreset.load(tmp_path / "b.npz").details["scale"] == "standard"
    images = ["select", "mnist", "--data", "torchvision", *FAST, "--size", "3"]
    raw = bicore(*images, "--scale", "none", cwd=folder)
    assert "pixels scaled to 0 … 1" in raw.stderr


#: Words after ``bicore select``, and what the one line of their refusal names.
REFUSED = {
    "digits --size 0": "--size",
    "digits --size many": "--size",
    "digits --size 200%": "--size",
    "digits --size auto --method uniform": "--size auto",
    "digits --size 5 --tolerance 0.1": "--tolerance 0.1 needs --size auto",
    "digits --size 5 --kernel rfb": "Did you mean 'rbf'",
    "digits --size 5 --loss hinge": "--loss hinge",
    "digits --size 5 --method bilvel": "Did you mean 'bilevel'",
    "digits --size 5 --method icarl": "model=…) from Python",
    "digits --size 5 --method k-center-features --loss cross-entropy": "no option --loss",
    "digits --size 5 --method class-balanced --task classification": "task",
    "digits --size 5 --inner-reg -1": "--inner-reg must",
    "digits --size 5 --limit -3": "--limit must",
    "digits --size 5 --target label": "--target does not apply",
    "digits --size 5 --out data.npz": "data.npz exists",
    "digits --size 5 --out x.txt": "must end in .npz, .csv or .parquet",
    "digits --size 5 --out none/x.npz": "none does not exist",
    "digits --size 5 --out x.csv": "--out x.csv",
    "table.csv --size 5 --target lable": "Did you mean 'label'",
    "table.csv --size 5 --target label --sample-weight label": "in both target and sample_weight",
    "mnist --size 5": "--data DIR or set BICORE_DATA",
    "cifar10 --size 5 --data images": "data_batch_1",
    "cifar10 --size 5 --data hostile": "data_batch_1 is not a readable CIFAR-10 file",
    "cut.npz --size 5": "cut.npz",
    "binary.csv --size 5 --target label": "not a text file",
    "pickled.npy --size 5 --labels y.npy": "pickled.npy holds pickled",
    "x.npy --size 5 --labels y.npy --sample-weight w": "--sample-weight does",
    "ragged.csv --size 1 --target label": "line 3",
    "broken --size 1": "bad.png",
    "floats --size 1": "floating-point pixels",
}


@pytest.fixture(scope="module")
def damaged_folder(folder):
    """The same folder with files that are not what they should be."""
    (folder / "cut.npz").write_bytes((folder / "data.npz").read_bytes()[:300])
    (folder / "binary.csv").write_bytes(b"PAR1\0\0\0")
    np.save(folder / "pickled.npy", np.array([{"a": 1}] * 60, dtype=object), allow_pickle=True)
    (folder / "ragged.csv").write_text("a,label\n1,2\n3\n")
    floats, broken = folder / "floats" / "cat", folder / "broken" / "cat"
    hostile = folder / "hostile" / "cifar-10-batches-py"
    for place in (floats, broken, hostile):
        place.mkdir(parents=True)
    Image.fromarray(np.zeros((5, 5), np.float32), mode="F").save(floats / "a.tif")
    Image.fromarray(np.zeros((5, 5), np.uint8)).save(broken / "a.png")
    (broken / "bad.png").write_bytes(b"not an image")

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {folder / 'owned'}",)

    (hostile / "data_batch_1").write_bytes(pickle.dumps(Evil()))
    return folder


def read_files(folder):
    return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("words", REFUSED)
def test_bad_requests_end_with_code_2_and_one_line(bicore, words, damaged_folder):
    before = read_files(damaged_folder)
    assert_refused(bicore("select", *words.split(), "--quiet", cwd=damaged_folder), REFUSED[words])
    # nothing overwritten, nothing run
    assert read_files(damaged_folder) == before


#: Wait for the first point however slow the machine is, so that a tiny limit ends after it.
LONG_GRACE = {"bicore.runtime.clock.GRACE_SECONDS": HANG}


def test_time_limit_and_uniform(bicore, folder):
    words = ["select", "data.npz", *FAST, "--size", "30", "--max-seconds", "0.000001", "--json"]
    answer = json.loads(bicore(*words, cwd=folder, replace=LONG_GRACE).stdout)
    assert answer["size"] == 1
    assert answer["status"] == "out of time"
    assert answer["message"] == "stopped by max_seconds after 1 of 30 rows"
    words = ["select", "data.npz", "--method", "uniform", "--size", "0.1", "--json"]
    uniform = json.loads(bicore(*words, cwd=folder).stdout)
    assert uniform["size"] == 6
    assert uniform["objective"] is None


def test_early_end_is_recorded_in_the_file(bicore, folder, tmp_path):
    out = tmp_path / "a.npz"
    words = ["--method", "k-center-features", "--size", "30", "--max-seconds", "0.000001"]
    words = ["select", "data.npz", *words, "--out", out]
    made = assert_success(bicore(*words, cwd=folder, replace=LONG_GRACE))
    assert "status: stopped by max_seconds after 1 of 30 rows" in made.stdout
    shown = bicore("show", out).stdout
    for line in (
        "message              stopped by max_seconds after 1 of 30 rows",
        "rows of the data     60",
        "feature scaling      none",
        "versions             bicore ",
        "note                 features: as they are",
        "note                 To reproduce: bicore select data.npz --method k-center-features",
    ):
        assert line in shown


def test_an_automatic_kernel_is_named_in_one_line(bicore, folder, tmp_path):
    first = tmp_path / "first.npz"
    words = ("select", "data.npz", "--kernel", "auto", "--inner-reg", "0.1")
    result = bicore(*words, "--size", "5", "--out", first, cwd=folder)
    lines = [line for line in result.stdout.splitlines() if line.startswith("kernel: ")]
    record = Coreset.load(first).details["kernel_trials"]
    assert len(lines) == 1
    assert lines[0].startswith(f"kernel: {record['name']}; ")
    again = bicore(*words, "--size", "9", "--initial", first, "--json", "--quiet", cwd=folder)
    assert json.loads(again.stdout)["indices"][:5] == Coreset.load(first).indices.tolist()


@pytest.mark.parametrize("verb", ["compare", "select", "show", "stream", "worth"])
def test_every_option_has_a_help_text(verb):
    module = import_module(f"bicore.cli.{verb}")
    groups = [one for one in vars(module).values() if is_dataclass(one) and hasattr(one, "panel")]
    every = [one for group in groups for one in options._parameters(group)]
    assert every
    assert not [one.name for one in every if not one.annotation.__metadata__[0].help]


def test_completion_version_and_doctor(bicore):
    assert "--install-completion" in bicore("--help").stdout
    assert bicore("--version").stdout.startswith("bicore ")
    assert "torch" in bicore("doctor").stdout
    assert _install_line("dask") == "pip install 'bicore[dask]'"
    assert "torch==" in _install_line("")


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.13.0", "torch==2.13.0"),
        ("2.13.0+cpu", "torch==2.13.0+cpu --extra-index-url https://download.pytorch.org/whl/cpu"),
    ],
)
def test_avalanche_is_installed_with_the_same_build_of_torch(monkeypatch, version, words):
    monkeypatch.setattr(show, "_version", lambda name: version)
    assert _install_line("") == f"pip install avalanche-lib {words}"


def test_the_installed_script_is_the_same_command():
    script = os.path.join(os.path.dirname(sys.executable), "bicore")
    assert subprocess.run(
        [script, "--version"], capture_output=True, text=True, timeout=HANG
    ).stdout.startswith("bicore ")


def test_a_refused_read_is_a_request_that_cannot_be_right(monkeypatch, capsys):
    """What the operating system forbids ends with code 2, also for whoever runs the tests as root."""
    from bicore.cli import app

    def forbid(*args, **kwargs):
        raise PermissionError(13, "Permission denied", "data.csv")

    monkeypatch.setattr(app, "_make_app", lambda: forbid)
    with pytest.raises(SystemExit) as stop:
        app.main()
    assert stop.value.code == 2
    assert "no permission for data.csv" in capsys.readouterr().err


@pytest.mark.slow
def test_the_size_may_be_left_to_the_command_and_points_exchanged(bicore):
    words = ["select", "digits", "--limit", "200", *FAST, "--size"]
    shown = assert_success(bicore(*words, "auto", "--tolerance", "0.5"))
    assert "is at most 50% above that of all rows" in shown.stdout  # forty or so, by class
    shown = bicore(*words, "12", "--strategy", "exchange")
    assert "exchanges: " in shown.stdout
    words = ["select", "digits", "--size", "5", "--strategy", "swap", "--quiet", *FAST]
    assert_refused(bicore(*words), "--strategy swap")


def test_memory_errors_name_the_options_of_the_command(bicore):
    found = bicore("select", "digits", "--size", "50", "--memory", "100KB", "--quiet")
    assert_refused(found, "raise --memory", "--dtype float32")
    assert "Runtime(" not in found.stderr
