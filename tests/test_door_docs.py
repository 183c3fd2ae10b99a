"""The page of doors: its table counts the lines that stand below it, and they run."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "doors.md").read_text()
ROWS = re.findall(r"^\| \[([^\]]+)\]\(#([^)]+)\) \| (\d+) \| (\d+) \|", PAGE, flags=re.MULTILINE)
SECTIONS = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", PAGE, flags=re.DOTALL | re.MULTILINE))


def blocks(text: str) -> list[str]:
    return re.findall(r"^```py\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def test_the_table_counts_the_lines_of_each_section():
    for task, link, ours, others in ROWS:
        title = next(title for title in SECTIONS if title.lower() == task.lower())
        assert anchor(title) == link
        counts = [len(block.strip().splitlines()) for block in blocks(SECTIONS[title])]
        assert counts == [int(ours), int(others)], title


def test_every_section_is_in_the_table():
    assert {title.lower() for title in SECTIONS} == {task.lower() for task, *_ in ROWS}


@pytest.mark.slow
def test_the_lines_run(tmp_path, monkeypatch):
    for host in ("imblearn", "datasets", "skactiveml"):
        pytest.importorskip(host, reason=f"{host} is not installed (extra: doors)")
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for block in blocks(PAGE):
        exec(compile(block, "doors.md", "exec"), namespace)
    assert namespace["small"].column_names[-1] == "weight"
    assert len(namespace["asked"]) == 10
