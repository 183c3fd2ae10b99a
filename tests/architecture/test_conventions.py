"""Conventions of the package."""

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "bicore"
FILES = sorted(SOURCE.rglob("*.py"))


def calls(tree: ast.AST, name: str) -> int:
    """How often a function is called by this name."""
    found = 0
    for node in ast.walk(tree):
        named = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        found += named and node.func.id == name
    return found


def test_the_greedy_loop_asks_no_types():
    tree = ast.parse((SOURCE / "bilevel" / "greedy.py").read_text())
    assert calls(tree, "isinstance") == 0
    assert calls(tree, "type") == 0


def test_frozen_values_are_set_by_their_own_post_init_only():
    wrong = []
    for path in FILES:
        uses = path.read_text().count("object.__setattr__")
        if not uses:
            continue
        own = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef) and node.name == "__post_init__"
        ]
        inside = sum(ast.unparse(node).count("object.__setattr__") for node in own)
        if uses != inside:
            wrong.append(str(path.relative_to(SOURCE)))
    assert not wrong


def reads_prose(text: str) -> bool:
    """Whether code looks into a sentence, or into what is kept for display."""
    if not any(f".{field}" in text for field in ("status", "message", "info", "details")):
        return False
    for node in ast.walk(ast.parse(text)):
        words = ast.unparse(node) if isinstance(node, (ast.Call, ast.Compare)) else ""
        for field in ("status", "message"):
            looks = [f".{field}.{way}" for way in ("startswith", "endswith", "split", "find")]
            if any(look in words for look in looks) or words.endswith(f" in coreset.{field}"):
                return True
        for field in ("info", "details"):
            keyed = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
            if keyed and ast.unparse(node.value).endswith(f"coreset.{field}"):
                return True
            if f"coreset.{field}.get(" in words:
                return True
    return False


def test_no_code_parses_prose():
    """How a selection ended is an enum, and what produced it is typed."""
    assert not [path.name for path in FILES if reads_prose(path.read_text())]
    for line in (
        "coreset.status.startswith('interrupted')",
        "'max_seconds' in coreset.message",
        "coreset.info['n']",
        "coreset.details.get('exchanges')",
    ):
        assert reads_prose(line), line
