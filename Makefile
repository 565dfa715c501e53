# Two commands are enough: `make demo` and `make test`. The rest is for those who change duckkb.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check check-full campaigns bench bench-peers docs format clean

demo: $(STAMP)  ## Search, change and diff the repository's own knowledge base, on a temporary copy
	@$(BIN)/python docs/demo.py

test: $(STAMP)  ## The test suite (under 10 minutes on 2 cores)
	$(BIN)/python -m pytest -n 2 -m "not slow"

check: $(STAMP)  ## Format, lint, types, layers, generated documents, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/review.py --check
	$(BIN)/duckkb --kb . check
	$(MAKE) test

check-full: check campaigns  ## `check`, then the whole campaigns (docs/reliability.md), and the laws on fresh examples
	$(BIN)/python -m pytest -n 2 -m slow --ignore=tests/campaigns
	$(BIN)/python -m pytest -n 2 --hypothesis-profile=fresh tests/properties

campaigns: $(STAMP)  ## Faults, kills, concurrency and hostile input at full size; prints the figures (under an hour)
	$(BIN)/python -m pytest -n 2 --dist=worksteal --campaign=full --durations=25 tests/campaigns

bench: $(STAMP)  ## Ratios against floors, on generated data (and on DUCKKB_EVAL_DATA where it is set)
	$(BIN)/python bench/start.py
	$(BIN)/python bench/scale.py
	$(BIN)/python bench/embedding.py
	$(BIN)/python bench/quality.py

bench-peers: $(STAMP)  ## Beside LanceDB, Chroma, sqlite-vec and agentcairn, which it installs; writes docs/performance.md (an hour)
	$(BIN)/python bench/peers.py
	$(BIN)/python bench/boot.py
	$(BIN)/python bench/report.py

docs: $(STAMP)  ## Write the generated references and the page of review anew
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/review.py

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
