"""Data flows one way through the folders: who may import whom."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "bicore"
#: From the ground up; a module may import its own layer and those below it.
LAYERS = [
    ["_version", "errors", "notebook"],
    ["archives", "files", "frames", "sparse"],
    ["runtime", "data"],
    ["coreset", "losses", "sources", "state"],
    ["picking", "numerics"],
    ["kernels", "networks"],
    ["moments"],
    ["shards"],
    ["bilevel"],
    ["selectors"],
    ["active", "api", "distributed", "memory"],
    ["evaluate"],
    ["compat", "report"],
    ["cli"],
    ["__init__", "__main__"],
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
#: Arrows that must not exist although the layers would allow them.
FORBIDDEN = {
    "bilevel/solvers": ["bicore.bilevel.hypergradient", "bicore.bilevel.engines"],
    "bilevel/greedy.py": ["bicore.bilevel.engines", "bicore.bilevel.strategies"],
    "bilevel/rules.py": ["bicore.bilevel.engines", "bicore.bilevel.greedy"],
    "bilevel/engines": ["bicore.bilevel.strategies", "bicore.bilevel.greedy"],
    "coreset.py": ["bicore.kernels", "bicore.losses"],
    "kernels": ["bicore.losses", "bicore.coreset"],
    "memory": ["bicore.bilevel"],
}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def is_module(name: str) -> bool:
    place = SOURCE.parent.joinpath(*name.split("."))
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


def imports_in(text: str) -> list[str]:
    """Modules of ours that some code imports, however it is written: ``from package import module``
    is an import of the module."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("bicore"):
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            within = [name for name in inside if is_module(name)]
            found += within
            if len(within) < len(inside):
                found.append(node.module)
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.startswith("bicore")]
    return found


def imports(path: Path) -> list[str]:
    return imports_in(path.read_text())


def forbidden(place: str, module: str) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in FORBIDDEN[place])


def layer(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_arrows_run_downwards(path):
    own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    assert own in HEIGHT, (
        f"{own} has no place in the picture; add it to docs/architecture.md and here"
    )
    for module in imports(path):
        target = layer(module)
        assert HEIGHT[target] < HEIGHT[own] or target == own, (
            f"{path.name} imports {module}: {own} stands below {target}"
        )


def test_no_cycles_between_files():
    graph = {}
    for path in modules():
        name = ".".join(("bicore", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        graph[name] = [module for module in imports(path) if path.name != "__init__.py"]
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, f"cycle: {' → '.join((*trail, name))}"
        if name not in done:
            for target in graph.get(name, []):
                visit(target, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_forbidden_arrows():
    for place in FORBIDDEN:
        assert (SOURCE / place).exists()
        whole = place.endswith(".py")
        paths = [SOURCE / place] if whole else sorted((SOURCE / place).rglob("*.py"))
        for path in paths:
            for module in imports(path):
                assert not forbidden(place, module), f"{path.name} imports {module}"


@pytest.mark.parametrize(
    "line",
    [
        "import bicore.bilevel.hypergradient",
        "from bicore.bilevel import hypergradient",
        "from bicore.bilevel import contract, hypergradient as slopes",
        "from bicore.bilevel.hypergradient import implicit_gradient",
        "def later():\n    from bicore.bilevel import hypergradient",
    ],
)
def test_a_forbidden_arrow_is_seen_however_it_is_written(line):
    text = (SOURCE / "bilevel/solvers/inner.py").read_text()
    assert not any(forbidden("bilevel/solvers", module) for module in imports_in(text))
    worse = f"{text}\n{line}\n"
    assert any(forbidden("bilevel/solvers", module) for module in imports_in(worse))


def test_importing_bicore_pulls_in_nothing_heavy():
    """scikit-learn, scipy and the compiler parts of torch wait until they are used."""
    code = (
        "import torch, sys; before = set(sys.modules); import bicore; "
        "print(sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for heavy in (
        "'sklearn'",
        "'scipy'",
        "'torch.fx'",
        "'pandas'",
        "'matplotlib'",
        "'torch._dynamo'",
    ):
        assert heavy not in loaded


def test_public_names_exist_and_are_documented():
    import bicore

    assert len(bicore.__all__) <= 35
    for name in bicore.__all__:
        thing = getattr(bicore, name)
        if callable(thing):
            assert thing.__doc__, f"{name} has no docstring"
