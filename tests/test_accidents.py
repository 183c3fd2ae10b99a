"""Accidents and hostile files, through the command's entry point."""

import ast
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from importlib import metadata
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch

import bicore as library
from bicore import Coreset
from tests.commands import assert_refused, assert_success
from tests.fuzzing import encrypt
from tests.helpers import blobs

#: Whichever folder a process is started in, it finds the package that is tested.
PLACE = {**os.environ, "PYTHONPATH": str(Path(library.__file__).parents[1])}
FAST = ["--kernel", "rbf", "--inner-reg", "0.1"]
SELECT = ["select", "data.npz", *FAST, "--size", "5"]
#: A line of progress at once, whatever the time.
AT_ONCE = {"bicore.runtime.clock.LINE_EVERY_SECONDS": 0.0}


@pytest.fixture
def folder(tmp_path):
    data = blobs(60)
    np.savez(tmp_path / "data.npz", x=data.x, y=data.y)
    np.savez(tmp_path / "targets.npz", x=data.x, y=data.x[:, 0] + 0.1)
    return tmp_path


def one_line(result) -> str:
    """What a refusal says: a single line of the command's own."""
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("bicore: ")
    assert "Traceback" not in line
    return line


def run_python(code: str, *words: str, env=PLACE, cwd=None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


# ---- 2: the lock of a stream


STREAM = ["stream", "data.npz", "--capacity", "5", "--state"]


@pytest.mark.parametrize("how", ["symbolic", "hard", "pipe"])
def test_no_planted_link_is_followed(bicore, folder, how):
    precious = folder / "precious"
    precious.write_bytes(b"precious")
    (folder / "state").mkdir()
    lock = folder / "state" / "lock"
    plant = {
        "symbolic": lambda: lock.symlink_to(precious),
        "hard": lambda: os.link(precious, lock),
        "pipe": lambda: os.mkfifo(lock),
    }
    plant[how]()
    assert_refused(bicore(*STREAM, "state", cwd=folder), "lock must be a regular file")
    assert precious.read_bytes() == b"precious"


def test_temporary_file_never_follows_an_existing_link(tmp_path, monkeypatch):
    from bicore import files

    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "guessed")
    (tmp_path / f".a.{os.getpid()}-guessed.part.txt").symlink_to(precious)
    with pytest.raises(FileExistsError), files.replacing(tmp_path / "a.txt"):
        pass
    assert precious.read_bytes() == b"precious"


def test_m8_a_file_that_another_process_wrote_meanwhile_is_kept(command, folder, monkeypatch):
    from bicore.cli import answer

    keep = answer._save
    out = folder / "picks.npz"

    def keep_second(source, coreset, path):
        out.write_bytes(b"first")
        keep(source, coreset, path)

    monkeypatch.setattr(answer, "_save", keep_second)
    assert command(*SELECT, "--out", out).returncode == 1
    assert out.read_bytes() == b"first"
    assert len(Coreset.load(folder / "bicore-selection.npz")) == 5
    assert command(*SELECT, "--out", out, "--force").returncode == 0
    assert len(Coreset.load(out)) == 5
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("links", [True, False])
def test_m8_a_new_file_takes_no_name_that_exists(tmp_path, monkeypatch, links):
    from bicore.files import replacing

    def refuse(*paths):
        raise PermissionError(1, "no hard links here")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    out = tmp_path / "a.txt"
    with replacing(out, overwrite=False) as temporary:
        temporary.write_text("first")
    with pytest.raises(FileExistsError) as raised, replacing(out, overwrite=False) as temporary:
        temporary.write_text("second")
    assert raised.value.filename == str(out)
    assert out.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_l2_force_keeps_the_mode_of_a_file(command, folder):
    out = folder / "picks.npz"
    for mode in (0o600, 0o444, 0o664):
        out.write_bytes(b"old")
        out.chmod(mode)
        assert command(*SELECT, "--out", out, "--force").returncode == 0
        assert out.read_bytes() != b"old"
        assert out.stat().st_mode & 0o777 == mode
        out.unlink()


def test_m12_no_map_for_profilers_is_left_behind():
    left = Path(tempfile.gettempdir()) / f"perf-{os.getpid()}.map"
    assert os.environ["ONEDNN_JIT_PROFILE"] == "0"
    torch.nn.functional.conv2d(torch.ones(1, 1, 8, 8), torch.ones(1, 1, 3, 3))
    assert not left.exists()


# ---- 3: a finished selection is never lost


def rows_in(text: str) -> list[int]:
    (line,) = [line for line in text.splitlines() if line.startswith("all rows: ")]
    return [int(word) for word in line.removeprefix("all rows: ").split(",")]


@pytest.mark.parametrize("quiet", [["--quiet"], pytest.param([], marks=pytest.mark.slow)])
def test_a_finished_selection_survives_an_out_that_fails(bicore, folder, quiet):
    plain = json.loads(bicore(*SELECT, "--json", cwd=folder).stdout)
    (folder / "old.npz").write_bytes(b"old")
    result = bicore(*SELECT, "--out", "old.npz", "--force", *quiet, cwd=folder, largest_file=900)
    assert result.returncode == 1
    assert rows_in(result.stdout) == plain["indices"]
    assert "old.npz could not be written (File too large)" in result.stderr
    assert "could not be kept in any file" in result.stderr
    assert (folder / "old.npz").read_bytes() == b"old"


def test_failed_output_is_saved_in_a_fallback_file(bicore, folder):
    (folder / "t.csv").write_text(
        "a,b,label\n" + "".join(f"{i},{i * i % 7},{i % 2}\n" for i in range(40))
    )
    words = ["select", "t.csv", "--target", "label", *FAST, "--size", "4"]
    patch = {"bicore.sources.tables.write_rows": None}  # calling it fails, whatever the reason
    result = bicore(*words, "--out", "picks.csv", cwd=folder, replace=patch)
    assert result.returncode == 1
    kept = re.search(r"are kept in (\S+)\.$", result.stderr.strip().splitlines()[-1])[1]
    assert Coreset.load(folder / kept).indices.tolist() == rows_in(result.stdout)
    shown = bicore("show", kept, cwd=folder).stdout
    assert "To reproduce: bicore select t.csv" in shown


@pytest.mark.slow
def test_a_failed_picture_keeps_the_other_files(bicore, folder):
    patch = {"bicore.report.figures.draw": None}
    result = bicore(*SELECT, "--out", "a.npz", "--picture", "a.png", cwd=folder, replace=patch)
    assert result.returncode == 1
    assert "written: a.npz" in result.stdout
    assert "a.png could not be written" in one_line_of(result, "a.png")
    assert len(Coreset.load(folder / "a.npz")) == 5
    assert not list(folder.glob("bicore-selection*"))


def one_line_of(result, word: str) -> str:
    (line,) = [line for line in result.stderr.splitlines() if word in line]
    return line


@pytest.mark.parametrize("as_json", [[], pytest.param(["--json"], marks=pytest.mark.slow)])
def test_a_finished_selection_survives_a_full_standard_output(bicore, folder, as_json):
    result = bicore(*SELECT, *as_json, "--quiet", cwd=folder, output="/dev/full")
    assert result.returncode == 1
    first, second = result.stderr.strip().splitlines()
    assert "the rows are kept in bicore-selection.npz" in first
    assert "No space left on device" in second
    assert len(Coreset.load(folder / "bicore-selection.npz")) == 5


@pytest.mark.slow
def test_stream_state_survives_a_failing_output(bicore, folder):
    words = ["stream", "data.npz", "--buffer", "reservoir", "--capacity", "5", "--state", "state"]
    result = bicore(
        *words, "--out", "kept.npz", cwd=folder, replace={"bicore.coreset.Coreset.save": None}
    )
    assert result.returncode == 1
    assert len(rows_in(result.stdout)) == 5
    assert "state: state" in result.stdout
    assert list((folder / "state").glob("state-*.npz"))


# ---- 5: nothing that a file holds steers a terminal

EVIL = "a\x1b]0;owned\x07\nb\x9b31m\u202ec\x7f"
STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]")


def assert_harmless(result, lines: int | None = None) -> None:
    """No steering characters; and no more lines than there are without a line break in a name."""
    assert not STEERING.search(result.stdout + result.stderr)
    if lines is not None:
        assert len((result.stdout + result.stderr).splitlines()) == lines


def write_evil_table(folder, evil: str) -> None:
    rows = [["x", evil, "label"]]
    rows += [[str(i % 7), f"{evil}{i % 3}", evil if i % 2 else "plain"] for i in range(40)]
    with open(folder / "t.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def test_terminal_injection_by_class_and_column_names(bicore, folder):
    words = ["select", "t.csv", "--target", "label", *FAST, "--size", "4"]
    write_evil_table(folder, "nice")
    plain = assert_success(bicore(*words, cwd=folder))
    write_evil_table(folder, EVIL)
    result = assert_success(bicore(*words, cwd=folder))
    assert_harmless(result, len((plain.stdout + plain.stderr).splitlines()))
    assert r"a\x1b]0;owned\x07\nb\x9b31m\u202ec\x7f" in result.stdout
    found = bicore(*words, "--json", cwd=folder)
    assert_harmless(found)
    assert EVIL in json.loads(found.stdout)["classes"]
    refused = bicore(*words[:3], f"{EVIL}!", *words[4:], "--quiet", cwd=folder)
    assert refused.returncode == 2
    assert_harmless(refused, 1)


def test_terminal_injection_by_the_fields_that_show_prints(bicore, folder):
    names = dict.fromkeys(("method", "task", "kernel", "loss"), EVIL)
    coreset = Coreset(np.array([1, 2]), message=EVIL).with_details(
        {**names, "notes": (EVIL,)}, **{EVIL: EVIL, "nested": {EVIL: [EVIL]}}
    )
    coreset.save(folder / "evil.npz")
    plain = Coreset(np.array([1, 2]), message="m").with_details(
        {**dict.fromkeys(names, "m"), "notes": ("m",)}, m="m", nested={"m": ["m"]}
    )
    plain.save(folder / "plain.npz")
    lines = bicore("show", "plain.npz", cwd=folder).stdout.splitlines()
    result = assert_success(bicore("show", "evil.npz", cwd=folder))
    assert_harmless(result, len(lines))


@pytest.mark.slow
def test_terminal_injection_by_file_names_and_options(bicore, folder):
    (folder / EVIL.replace("/", "")).write_text("no table")
    for words in (
        ["select", EVIL, "--size", "4"],
        ["select", "data.npz", "--size", EVIL],
        ["select", "data.npz", f"--{EVIL}", "4"],
        ["show", EVIL],
        ["stream", "data.npz", "--capacity", "4", "--state", EVIL],
    ):
        result = bicore(*words, "--quiet" if words[0] != "show" else "--help", cwd=folder)
        assert_harmless(result)


# ---- 7: bicore compare

COMPARE = ["--seeds", "2", "--sizes", "5", "--kernel", "rbf"]


FEW = [*COMPARE, "--methods", "uniform"]


def test_compare_reports_the_folder_of_its_records(bicore, folder):
    result = assert_success(bicore("compare", "data.npz", *FEW, cwd=folder))
    (path,) = (folder / "cache").iterdir()
    assert f"records: {path}" in result.stdout.splitlines()
    assert f"results are stored in {path}" in result.stderr
    assert not list(folder.glob("*.jsonl"))
    (folder / "mine").mkdir()
    found = bicore("compare", "data.npz", *FEW, "--records", "mine", "--json", cwd=folder)
    assert json.loads(found.stdout)["records"] == f"mine/{path.name}"


@pytest.mark.parametrize(
    "left", [40, *(pytest.param(left, marks=pytest.mark.slow) for left in (0, 1, 13, -1))]
)
def test_compare_accepts_its_file_with_a_truncated_first_line(bicore, folder, left):
    bicore("compare", "data.npz", *FEW, "--records", "r.jsonl", cwd=folder)
    head = (folder / "r.jsonl").read_bytes().splitlines(keepends=True)[0]
    (folder / "r.jsonl").write_bytes(head[:left])
    result = assert_success(bicore("compare", "data.npz", *FEW, "--records", "r.jsonl", cwd=folder))
    assert (folder / "r.jsonl").read_bytes().startswith(head)
    (folder / "r.jsonl").write_bytes(b'{"mine": ' + head[:left])
    result = bicore("compare", "data.npz", *FEW, "--records", "r.jsonl", "--quiet", cwd=folder)
    assert result.returncode == 2
    assert "is not a file of comparison records" in one_line(result)


# ---- 8: one line with the fix


def pack_coreset(head: str | None = None, how: int = zipfile.ZIP_STORED, **arrays: object) -> bytes:
    """A coreset file with some of its parts exchanged."""
    parts = {
        "indices": np.array([3, 1]),
        "weights": np.ones(2),
        "ids": np.array([3, 1]),
        "objectives": np.array([0.5, 0.4]),
        "head": np.array(json.dumps(HEAD) if head is None else head),
        **arrays,
    }
    content = BytesIO()
    with zipfile.ZipFile(content, "w", how) as archive:
        for name, value in parts.items():
            member = BytesIO()
            np.save(member, value)
            archive.writestr(f"{name}.npy", member.getvalue())
    return content.getvalue()


HEAD = {"format": 2, "status": "complete", "message": "", "provenance": {}, "details": {}}


def pack_head(**fields: object) -> bytes:
    return pack_coreset(json.dumps({**HEAD, **fields}))


def provenance(**fields: object) -> bytes:
    return pack_head(provenance=fields)


def plain_array() -> bytes:
    content = BytesIO()
    np.save(content, np.arange(3))
    return content.getvalue()


def flip_byte() -> bytes:
    content = bytearray(pack_coreset())
    content[content.find(b"NUMPY") + 130] ^= 255
    return bytes(content)


MALFORMED = {
    "empty": lambda: b"",
    "text": lambda: b"hello\n",
    "an array": plain_array,
    "cut": lambda: pack_coreset()[:-40],
    "a bit flipped": flip_byte,
    "encrypted": lambda: encrypt(pack_coreset()),
    "compressed": lambda: pack_coreset(how=zipfile.ZIP_DEFLATED),
    "another compression": lambda: pack_coreset(how=zipfile.ZIP_LZMA),
    "no head": lambda: pack_coreset().replace(b"head.npy", b"haed.npy"),
    "head no JSON": lambda: pack_coreset("{"),
    "head a list": lambda: pack_coreset("[]"),
    "head too deep": lambda: pack_coreset("[" * 100_000),
    "status": lambda: pack_head(status="fine"),
    "message": lambda: pack_head(message={"a": 1}),
    "provenance": lambda: pack_head(provenance=[1]),
    "seconds": lambda: provenance(seconds="soon"),
    "regulariser": lambda: provenance(inner_reg=[1]),
    "notes": lambda: provenance(notes="abc"),
    "a note": lambda: provenance(notes=[1]),
    "classes": lambda: provenance(classes=3),
    "details": lambda: pack_head(details="x"),
    "indices of fractions": lambda: pack_coreset(indices=np.array([0.5, 1.5])),
    "indices in a square": lambda: pack_coreset(indices=np.zeros((2, 2), int)),
    "indices twice": lambda: pack_coreset(indices=np.array([1, 1])),
    "indices below zero": lambda: pack_coreset(indices=np.array([-1, 1])),
    "indices beyond int64": lambda: pack_coreset(indices=np.array([2**64 - 1, 1], np.uint64)),
    "weights of text": lambda: pack_coreset(weights=np.array(["a", "b"])),
    "weights not finite": lambda: pack_coreset(weights=np.array([np.nan, 1.0])),
    "weights of others": lambda: pack_coreset(weights=np.ones(3)),
    "another format": lambda: pack_head(format=99),
}


#: One whose bytes are wrong and one whose words are; the others are read by the same lines.
QUICK = ("cut", "seconds")


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MALFORMED],
)
def test_a_malformed_coreset_file_is_refused_by_show_and_initial(bicore, folder, name):
    (folder / "bad.npz").write_bytes(MALFORMED[name]())
    for words in (["show", "bad.npz"], [*SELECT, "--initial", "bad.npz", "--quiet"]):
        assert_refused(bicore(*words, cwd=folder), "bad.npz")


@pytest.mark.slow
def test_complete_coreset_file_is_accepted(bicore, folder):
    (folder / "good.npz").write_bytes(pack_coreset())
    assert bicore("show", "good.npz", cwd=folder).returncode == 0
    assert bicore(*SELECT, "--initial", "good.npz", cwd=folder).returncode == 0
    assert bicore("show", ".", cwd=folder).returncode == 2


def test_ascii_standard_output_takes_every_sign(bicore, folder):
    result = assert_success(bicore("compare", "data.npz", *FEW, cwd=folder, encoding="ascii"))
    assert "mean +- standard error" in result.stdout
    assert "* best mean; ~ no significant" in result.stdout
    assert bicore("select", "--help", encoding="ascii").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("module", ["typer", "numpy", "torch", "bicore.sources"])
def test_an_interrupt_while_it_starts_ends_in_one_line(folder, module):
    """While options are read, and while the libraries are loaded."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from bicore.cli.app import main\nmain()\n"
    )
    result = run_python(code, *SELECT, cwd=folder)
    assert result.returncode == 130
    assert result.stderr == "bicore: interrupted while starting; nothing was begun.\n"


@pytest.mark.slow
def test_interrupt_without_points_ends_in_one_line():
    code = (
        "import bicore.sources.opening as o\n"
        "def late(*given, **named): raise KeyboardInterrupt\n"
        "o.open_source = late\n"
        "from bicore.cli.app import main\nmain()\n"
    )
    result = run_python(code, "worth", "digits", "--size", "5")
    assert result.returncode == 130
    assert result.stderr == "bicore: interrupted; no result was saved.\n"


def test_a_stream_state_that_is_a_file(bicore, folder):
    (folder / "file").write_bytes(b"mine")
    for place in ("file", "file/inside"):
        assert_refused(bicore(*STREAM, place, "--quiet", cwd=folder), "folder")
    assert (folder / "file").read_bytes() == b"mine"


# ---- 11: progress, and a quick start


def progress_lines(result, word: str) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith(f"{word} ")]


VERBS = {
    "selecting": SELECT,
    "streaming": ["stream", "data.npz", "--capacity", "9", "--state", "s", "--batch", "20"],
    "comparing": ["compare", "data.npz", *FEW],
}


@pytest.mark.parametrize(
    "word", ["selecting", *(pytest.param(word, marks=pytest.mark.slow) for word in list(VERBS)[1:])]
)
def test_progress_off_a_terminal_is_a_line_now_and_then(bicore, folder, word):
    lines = progress_lines(bicore(*VERBS[word], cwd=folder, replace=AT_ONCE), word)
    assert lines
    assert any("left" in line for line in lines)
    assert "after" in lines[-1]
    assert not any("\r" in line for line in lines)
    for path in ("s/lock", f"s/state-{60:015d}.npz"):
        (folder / path).unlink(missing_ok=True)
    quiet = bicore(*VERBS[word], "--quiet", cwd=folder, replace=AT_ONCE)
    assert not progress_lines(quiet, word)


def test_help_and_version_load_neither_torch_nor_numpy():
    verbs = ["select", "query", "contexts", "estimate", "worth", "compare", "stream", "predict"]
    verbs += ["show", "doctor"]
    typer = tuple(map(int, metadata.version("typer").split(".")[:2]))
    # typer itself loads rich up to here
    heavy = ["torch", "numpy", "scipy", "sklearn", *(["rich"] if typer > (0, 16) else [])]
    code = (
        "import sys\n"
        "from bicore.cli.app import main\n"
        f"for words in [['--version'], ['--help'], *([v, '--help'] for v in {verbs})]:\n"
        "    sys.argv = ['bicore', *words]\n"
        "    try:\n        main()\n"
        "    except SystemExit as stop:\n        assert not stop.code, words\n"
        f"heavy = [n for n in {heavy} if n in sys.modules]\n"
        "assert not heavy, heavy\n"
    )
    result = assert_success(run_python(code))
    assert result.stdout.count("Example: bicore") >= len(verbs)


def test_names_of_help_texts_are_those_of_the_library():
    from bicore import defaults
    from bicore.bilevel.kernel_choice import MODELS
    from bicore.evaluate.models import JUDGES
    from bicore.methods.registry import METHODS
    from bicore.streaming import BUFFERS

    assert tuple(JUDGES) == defaults.JUDGES
    assert tuple(MODELS) == defaults.MODELS
    known = [name for name, kind in BUFFERS.items() if not kind.needs_model]
    assert tuple(known) == defaults.BUFFERS
    assert set(defaults.METHODS) <= set(METHODS)
    assert set(defaults.MEMORIES) <= set(defaults.BUFFERS)


def test_public_names_are_loaded_from_their_declared_modules():
    source = ast.parse(Path(library.__file__).read_text())
    typed = next(
        node
        for node in source.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    imported = {
        alias.name: node.module.removeprefix("bicore.")
        for node in typed.body
        for alias in node.names
    }
    assert imported == library._HOME_OF
    assert {*imported, "__version__"} == set(library.__all__)
    assert library.kernels.RBF.__name__ == "RBF"  # modules are there without an import of their own
    assert not hasattr(library, "nothing_of_this_name")
    assert set(library.__all__) <= set(dir(library))


# ---- 12 and 13: options of select, and what a stream wrote


def test_select_takes_quotas_strategy_rule_and_prior(bicore, folder):
    x, y = blobs(60).x, blobs(60).y

    def select_indices(*words):
        return json.loads(bicore(*SELECT, "--json", *words, cwd=folder).stdout)["indices"]

    balanced = select_indices("--size", "6", "--quotas", "balanced")
    assert np.bincount(y[balanced]).tolist() == [2, 2, 2]
    capped = select_indices("--quotas", "0=0,2=1")
    assert np.bincount(y[capped], minlength=3).tolist() == [0, 4, 1]
    options = {"strategy": "greedy", "rule": "gain", "prior": "equal"}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    expected = library.select(x, y, 5, kernel="rbf", inner_reg=0.1, quotas={1: 2}, **options)
    assert select_indices(*words, "--quotas", "1=2") == expected.indices.tolist()


def test_show_prints_source_and_command_of_a_stream(bicore, folder):
    words = ["stream", "data.npz", "--buffer", "reservoir", "--capacity", "5", "--state", "s"]
    assert bicore(*words, "--out", "kept.npz", cwd=folder).returncode == 0
    shown = bicore("show", "kept.npz", cwd=folder).stdout
    assert "source               data.npz" in shown
    assert "note                 To reproduce: bicore stream data.npz --buffer reservoir" in shown
