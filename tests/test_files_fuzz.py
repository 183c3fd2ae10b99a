"""Three thousand damaged files, of every format, through the command.

Whatever is in a file: the outcome is a result, or an exit code of 2 or 1 with one line; it comes in
time, and within the memory limit plus a fixed allowance.
"""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import HANG
from tests.fuzzing import BLOWS, CASES, Blow, apply_blows

MEMORY = 100_000_000
#: Bytes that a command takes in addition to the data and to what the server holds already.
ROOM = 300_000_000
EACH = 110
TEXTS = 180
WORDS = ("--size", "1", "--json", "--quiet", "--memory", str(MEMORY))
UNIFORM = ("--method", "uniform")

blows: st.SearchStrategy[list[Blow]] = st.lists(
    st.tuples(
        st.sampled_from(BLOWS),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255),
        st.integers(1, 8),
    ),
    min_size=1,
    max_size=4,
)


def fuzz_settings(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


@pytest.fixture(scope="module")
def base(process):
    """What a call holds that reads nothing: the memory of the server, mostly."""
    return process("--version").peak


def check(run, words, folder, held=0, method=UNIFORM, **options) -> int:
    result = run("select", *words, *method, *WORDS, cwd=folder, **options)
    said = f"{result.returncode}: {result.stderr}"
    assert result.returncode in (0, 1, 2), said
    if result.returncode:
        assert result.stdout == ""
        assert result.stderr.startswith("bicore: "), said
        assert len(result.stderr.strip().splitlines()) == 1, said
    else:
        assert len(json.loads(result.stdout)["indices"]) == 1
        assert result.stderr == ""
    assert result.peak <= held + MEMORY + ROOM, said
    return result.returncode


def write_case(folder: Path, name: str) -> Path:
    """The files of a case; returns the one that will be spoilt."""
    case = CASES[name]
    for place, content in {**case.companions(), case.spoilt: case.content()}.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(content)
    return folder / case.spoilt


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_damaged_files_give_a_result_or_a_one_line_error(process, base, tmp_path, name):
    path = write_case(tmp_path, name)
    content = path.read_bytes()
    case = CASES[name]
    options = {"held": base, "method": case.method, "seconds": HANG}
    assert check(process, case.words, tmp_path, **options) == 0

    @fuzz_settings(EACH)
    @given(blows)
    def spoil(made):
        path.write_bytes(apply_blows(content, made))
        check(process, case.words, tmp_path, **options)

    spoil()


cells = st.one_of(
    st.text(max_size=8),
    st.floats().map(str),
    st.integers(-(10**30), 10**30).map(str),
    st.dates().map(str),
    st.times().map(str),
    st.sampled_from(["", "NA", "1,5", "1,001", "1.234,5", "inf", '"', "\r", "\n", ",", "5/6/2013"]),
)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
@pytest.mark.parametrize("quoted", [False, True])
def test_tables_of_any_text_end_in_a_result_or_one_line(process, base, tmp_path, ending, quoted):
    def line(row):
        if ending == "jsonl":
            return json.dumps(dict(zip("aby", row, strict=True)), ensure_ascii=quoted)
        shown = ['"' + one.replace('"', '""') + '"' for one in row] if quoted else row
        return ("," if ending == "csv" else "\t").join(shown)

    @fuzz_settings(TEXTS // 6)
    @given(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=6))
    def spoil(rows):
        header = [] if ending == "jsonl" else [line("aby")]
        text = "\n".join([*header, *map(line, rows)])
        (tmp_path / f"t.{ending}").write_bytes(text.encode(errors="surrogatepass"))
        words = (f"t.{ending}", "--target", "y")
        check(process, words, tmp_path, base, seconds=HANG)

    spoil()


@pytest.mark.parametrize("name", ["csv", "parquet", "npz packed", "png"])
def test_a_few_damaged_files(bicore, tmp_path, name):
    path = write_case(tmp_path, name)
    path.write_bytes(apply_blows(path.read_bytes(), [("flip", 0.7, 3, 1), ("drop", 0.4, 0, 5)]))
    check(bicore, CASES[name].words, tmp_path)
