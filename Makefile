# Every target sets up what it needs: a virtual environment with the exact versions of constraints.txt.
# Override PYTHON to use another interpreter, VENV to put the environment elsewhere.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# of make paper, see docs/gpu.md; TABLES are names of `eos ls tables`, SEARCH values such as steps=400
DATA ?= data/benchmarks
MIX ?= data/balanced_mix.json
IMAGES ?= data/images
OUT ?= runs/paper
LAUNCHER := $(if $(GPUS),$(BIN)/accelerate launch --multi_gpu --num_processes $(GPUS) -m eos,$(BIN)/eos)

.PHONY: help setup demo figures screenshots assets paper test check bench clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

setup: $(READY)  ## make the virtual environment and install EOS into it

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: setup  ## search plans on the miniature, compare them with every prior method (minutes)
	$(BIN)/eos reproduce --quick --out runs/demo

screenshots: setup  ## draw the page of the committed results in a browser (needs chromium-driver)
	$(BIN)/eos report results/miniature --out runs/page
	$(BIN)/python -m tests.screenshots runs/page/page.html docs/page

assets:  ## bundle the page's charting library again (needs npm)
	sh src/eos/report/assets/refresh.sh

figures: setup  ## draw the README's figure and write docs/results.md from committed results
	$(BIN)/eos report results/miniature --out runs/figures
	mkdir -p docs/figures
	cp runs/figures/figures/eos_overview.svg runs/figures/figures/eos_overview.csv docs/figures/
	cp runs/figures/results.md docs/results.md

paper: setup  ## search, then the paper's tables, on a GPU: DATA, MIX, IMAGES, GPUS, BACKBONE, LIMIT (hours; resumes)
	$(LAUNCHER) paper $(TABLES) $(SEARCH) --data $(DATA) --mix $(MIX) --images $(IMAGES) --out $(OUT) \
		$(if $(BACKBONE),--backbone $(BACKBONE)) $(if $(LIMIT),--limit $(LIMIT)) $(if $(DEVICE),--device $(DEVICE))

test: setup  ## run the tests
	$(BIN)/python -m pytest -n 2

check: setup  ## format, lint and type-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup  ## time the operator against the paper's listing and a LLaMA-7B decoder layer (minutes)
	$(BIN)/python benchmarks/bench_operator.py

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
