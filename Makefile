# make test      lint, types and tests (the README's command; at most five minutes on two cores)
# make test-all  the same and everything marked slow
# make demo      a coreset of the built-in digits against uniform samples
# make bench     the benchmark tables, as JSON
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Bytecode is written when a module is first imported, not for all of torch at install; the tests start many processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all lint types bench clean

# Types are looked at while the first tests run: one core would wait.
test: lint
	$(BIN)/mypy & types=$$!; $(BIN)/pytest -n 2 --dist loadfile -m "not slow"; tests=$$?; wait $$types && exit $$tests

test-all: lint types
	$(BIN)/pytest -n 2

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks selection --json

# torch comes first and pinned: an open range would fetch the newest build with its CUDA packages.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --no-compile -c constraints.txt torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(BIN)/pip install -q --no-compile -c constraints.txt -e ".[dev]"
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) build dist src/*.egg-info
