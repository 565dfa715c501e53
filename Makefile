# Two commands are enough: `make demo` and `make test`. The rest is for those who change duckkb.
PYTHON ?= python3
PYTHONS ?= python3.12 python3.13
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
INSTALL := -m pip install --quiet --disable-pip-version-check
NEWEST := .venv-newest
# A suite that may not keep its bytecode compiles itself anew in each process: 8 s a worker before the first test.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check check-full check-newest check-py campaigns campaigns-short bench bench-peers constraints docs format clean

demo: $(STAMP)  ## Search, change and diff the repository's own knowledge base, on a temporary copy
	@$(BIN)/python docs/demo.py

test: $(STAMP)  ## Laws, doors, conformance and units: what to run before each commit
	$(BIN)/python -m pytest -n 2 --dist=worksteal -m "not long" --ignore=tests/campaigns

check: $(STAMP)  ## Format, lint, types, layers, generated documents, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/review.py --check
	$(BIN)/duckkb --kb . check
	$(MAKE) test

check-full: check campaigns  ## `check`, then the whole campaigns (docs/reliability.md), every law on all its examples, drawn anew, the larger samples, and the doors by cold processes
	$(BIN)/python -m pytest -n 2 -m long --ignore=tests/campaigns
	$(BIN)/python -m pytest -n 2 --hypothesis-profile=fresh -m hypothesis --ignore=tests/campaigns
	$(BIN)/python -m pytest -n 2 --campaign=full -m larger --ignore=tests/campaigns
	DUCKKB_TEST_FORK=0 $(BIN)/python -m pytest -n 2 tests/doors

check-newest: $(NEWEST)  ## The suite and the short campaigns with the newest of every library, also beyond the bounds of pyproject.toml
	$(NEWEST)/bin/python -m pip freeze --exclude-editable | sed 's/==.*//' | xargs $(NEWEST)/bin/python $(INSTALL) --upgrade
	$(NEWEST)/bin/python -m pip freeze --exclude-editable | diff constraints.txt - || true
	$(NEWEST)/bin/python -m pytest -n 2

check-py:  ## The suite and the short campaigns on the other supported Pythons, each in a folder of its own: make check-py PYTHONS="python3.12 ..."
	for python in $(PYTHONS); do $(MAKE) test campaigns-short PYTHON=$$python VENV=.venv-$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 1; done

campaigns-short: $(STAMP)  ## A sample of every campaign, and the long tests, as CI takes them
	$(BIN)/python -m pytest -n 2 --dist=worksteal tests/campaigns
	$(BIN)/python -m pytest -n 2 --dist=worksteal -m long --ignore=tests/campaigns

campaigns: $(STAMP)  ## Faults, kills, concurrency and hostile input at full size, alone on the machine; prints the figures
	$(BIN)/python -m pytest -n 2 --dist=worksteal --campaign=full --durations=25 tests/campaigns

bench: $(STAMP)  ## Ratios against floors, on generated data (and on DUCKKB_EVAL_DATA where it is set)
	$(BIN)/python bench/start.py
	$(BIN)/python bench/scale.py
	$(BIN)/python bench/put.py
	$(BIN)/python bench/embedding.py
	$(BIN)/python bench/quality.py
	$(BIN)/python bench/chunks.py

bench-peers: $(STAMP)  ## Beside LanceDB, Chroma, sqlite-vec and agentcairn, which it installs; writes docs/performance.md (an hour)
	$(BIN)/python bench/peers.py
	$(BIN)/python bench/boot.py
	$(BIN)/python bench/report.py

constraints: $(NEWEST)  ## Write constraints.txt anew: the newest versions within the bounds. `make check-full check-py` before it is committed
	{ sed -n '/^#/p' constraints.txt; $(NEWEST)/bin/python -m pip freeze --exclude-editable; } > $(NEWEST)/constraints.txt
	mv $(NEWEST)/constraints.txt constraints.txt

docs: $(STAMP)  ## Write the generated references and the page of review anew
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/review.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) -c constraints.txt -e '.[dev]'
	@touch $@

# Bounds bind what is installed together with duckkb; pip lifts them where it is given the libraries without it.
.PHONY: $(NEWEST)
$(NEWEST):
	$(PYTHON) -m venv --clear $@
	$@/bin/python $(INSTALL) -e '.[dev]'

clean:
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
