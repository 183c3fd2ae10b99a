"""Which package may import which."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "bicore"
#: From the ground up; a module may import its own layer and those below it.
LAYERS = [
    ["_version", "defaults", "errors", "notebook", "types"],
    ["_deprecated"],
    ["files", "frames", "params", "sparse"],
    ["runtime", "data"],
    ["coreset", "losses", "sources"],
    ["arguments", "numerics"],
    ["kernels", "networks"],
    ["moments"],
    ["bilevel"],
    ["shards"],
    ["methods"],
    ["active", "api", "streaming"],
    ["evaluate"],
    ["integrations", "report"],
    ["cli"],
    ["__init__", "__main__"],
]
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}
#: Arrows that must not exist although the layers would allow them.
FORBIDDEN = {
    "bilevel/solvers": ["bicore.bilevel.engines"],
    "bilevel/greedy.py": ["bicore.bilevel.engines", "bicore.bilevel.strategies"],
    "bilevel/contract.py": ["bicore.bilevel.engines", "bicore.bilevel.greedy"],
    "bilevel/engines": ["bicore.bilevel.strategies", "bicore.bilevel.greedy"],
    "coreset.py": ["bicore.kernels", "bicore.losses"],
    "kernels": ["bicore.losses", "bicore.coreset"],
    "streaming": ["bicore.bilevel"],
}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@cache
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


@cache
def imports(path: Path) -> list[str]:
    return imports_in(path.read_text())


def is_forbidden(place: str, module: str) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in FORBIDDEN[place])


def layer(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def test_every_module_has_a_layer():
    missing = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in modules()}
    missing -= set(HEIGHT)
    assert not missing, f"add {sorted(missing)} to LAYERS and to docs/architecture.md"


def test_the_page_on_architecture_agrees_with_the_code():
    page = (ROOT / "docs" / "architecture.md").read_text()
    public = ([name for name in names if not name.startswith("_")] for names in LAYERS)
    assert " ← ".join(", ".join(names) for names in public if names) in " ".join(page.split())
    for name in re.findall(r"`([\w/]+\.py)`", page):
        assert (SOURCE / name).exists() or (ROOT / name).exists(), name
    parts = re.findall(r"--- a/(\S+)\n(.*?)(?=^---|^```)", page, re.DOTALL | re.MULTILINE)
    assert parts
    for name, changes in parts:
        lines = (ROOT / name).read_text().splitlines()
        context = [line for line in changes.splitlines() if line.startswith(" ")]
        assert all(line[1:] in lines for line in context), name


def test_modules_import_their_own_layer_and_those_below():
    wrong = []
    for path in modules():
        own = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        for module in imports(path):
            target = layer(module)
            if target != own and HEIGHT[target] >= HEIGHT[own]:
                wrong.append(f"{path.relative_to(SOURCE)} imports {module}")
    assert not wrong, "\n".join(wrong)


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


def test_no_forbidden_imports():
    wrong = []
    for place in FORBIDDEN:
        assert (SOURCE / place).exists()
        whole = place.endswith(".py")
        paths = [SOURCE / place] if whole else sorted((SOURCE / place).rglob("*.py"))
        for path in paths:
            found = [module for module in imports(path) if is_forbidden(place, module)]
            wrong += [f"{path.relative_to(SOURCE)} imports {module}" for module in found]
    assert not wrong, "\n".join(wrong)


def test_a_forbidden_import_is_seen_however_it_is_written():
    for line in (
        "import bicore.bilevel.engines.implicit",
        "from bicore.bilevel import engines",
        "from bicore.bilevel import contract, engines as machines",
        "from bicore.bilevel.engines.implicit import implicit_gradient",
        "def later():\n    from bicore.bilevel import engines",
    ):
        assert any(is_forbidden("bilevel/solvers", module) for module in imports_in(line)), line


def test_nothing_heavy_is_imported_before_it_is_used():
    """scikit-learn, scipy and the compiler parts of torch wait, and CUDA for a machine with one."""
    code = (
        "import torch, sys; before = set(sys.modules); import bicore\n"
        "print(sorted(set(sys.modules) - before))\n"
        "import numpy as np; x = np.random.default_rng(0).normal(size=(9, 6, 6))\n"
        "bicore.select(x, np.arange(9) % 3, size=3, kernel='cntk')\n"
        "gpu = ('bicore.kernels.gpu', 'triton')\n"
        "print([name for name in sys.modules if name.startswith(gpu)], torch.cuda.is_available())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, on_gpu = run.stdout.splitlines()
    for heavy in ("sklearn", "scipy", "torch.fx", "pandas", "matplotlib", "torch._dynamo"):
        assert f"'{heavy}'" not in loaded
    assert on_gpu == "[] False" or on_gpu.endswith("True")
