# make test      lint, types and tests (the README's command; at most five minutes on two cores)
# make test-all  the same and everything marked slow, with the libraries of all integrations
# make test-busy the tests five times, with two busy loops next to them
# make demo      a coreset of the built-in digits against random samples
# make bench     the benchmark tables, as JSON
# make bench-check  what became slower than recorded, by ratios to a matrix product
# make docs      the site, in build/docs; a warning is an error
# make sdist     the source distribution, unpacked, and tests of it run from there
# make test-lowest  the tests at the lowest versions that pyproject.toml allows
# make test-3.13    the tests on Python 3.13
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SDIST_TESTS := tests/test_package.py tests/test_docs.py tests/test_doctests.py tests/test_battery.py tests/test_selection.py
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Bytecode is written when a module is first imported, not for all of torch at install; the tests start many processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-busy test-lowest test-3.13 lint types bench bench-check docs sdist clean

# Types are checked while the first tests run: one core would wait. Assertions are not rewritten, which takes each core
# ten seconds: run a failing test by itself to see the values.
test: lint
	$(BIN)/mypy & types=$$!; $(BIN)/pytest -n 2 --dist worksteal --assert=plain -m "not slow"; tests=$$?; wait $$types && exit $$tests

test-all: lint types $(VENV)/.integrations
	$(BIN)/pytest -n 2

# No test may depend on speed.
test-busy: $(INSTALLED)
	(while :; do :; done) & first=$$!; (while :; do :; done) & second=$$!; trap "kill $$first $$second" EXIT; \
	for run in 1 2 3 4 5; do $(BIN)/pytest -n 2 --dist worksteal -m "not slow" || exit 1; done

$(VENV)/.integrations: $(INSTALLED)
	$(BIN)/pip install -q --no-compile -c constraints.txt -e ".[all,notebooks]"
	touch $@

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: $(INSTALLED)
	$(BIN)/mypy

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks selection --json

bench-check: $(INSTALLED)
	$(BIN)/python -m benchmarks check --repeats 5

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -q -W --keep-going -b html -d build/doctrees docs build/docs

$(VENV)/.docs: $(INSTALLED)
	$(BIN)/pip install -q --no-compile -c constraints.txt -e ".[docs]"
	touch $@

# Without the tests of pages and of the package, which read files that a wheel does not contain.
sdist: $(INSTALLED)
	rm -rf build/sdist
	$(BIN)/pip install -q -c constraints.txt build
	$(BIN)/python -m build -q --sdist --outdir build/sdist
	tar -xzf build/sdist/*.tar.gz -C build/sdist --strip-components 1
	cd build/sdist && PYTHONPATH=src $(abspath $(BIN))/pytest -m "not slow" $(SDIST_TESTS)

# pandas is a tool of the tests; its newer versions ask for a newer NumPy.
test-lowest:
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/lowest.py > .venv-lowest/lowest.txt
	.venv-lowest/bin/pip install -q --no-compile -c .venv-lowest/lowest.txt -e ".[tables,images,pictures]" pytest pytest-xdist hypothesis pandas numpydoc
	.venv-lowest/bin/pytest -n 2 --dist worksteal -m "not slow"

test-3.13:
	$(MAKE) test VENV=.venv-3.13 PYTHON=python3.13

# torch comes first and pinned: an open range would fetch the newest build with its CUDA packages.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --no-compile -c constraints.txt torch==$$(sed -n 's/^torch==//p' constraints.txt)
	$(BIN)/pip install -q --no-compile -c constraints.txt -e ".[dev]"
	touch $(INSTALLED)

clean:
	rm -rf $(VENV) .venv-lowest .venv-3.13 build dist src/*.egg-info
