# Works with GNU make 3.81 (macOS) and later. `make help` lists the targets.
SHELL := /usr/bin/env bash -euo pipefail
RUN := PATH="$(CURDIR)/.venv/bin:$$PATH"

.DEFAULT_GOAL := help
.PHONY: help env summary tiny test test-faults report bench clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile

env: ## .venv from the hash lock of this machine (PYTHON=, DRAFTLEDGER_BACKEND= overrule)
	@bash envs/setup.sh

summary: env ## the default experiment, then its table
	$(RUN) snakemake -j1 results/summary.parquet
	$(RUN) draftledger show results/summary.parquet

tiny: env ## the same pipeline on the smallest real model
	$(RUN) snakemake --cores all --configfile config/tiny.yaml -- results/tiny/summary.parquet

report: env ## results/report.html
	$(RUN) snakemake -j1 results/report.html

test: ## every check (.ci/run is this)
	@bash tests/run.sh

test-faults: env ## every fault at every place that tests/faults knows, within 15 minutes
	@DRAFTLEDGER_FAULTS=all $(RUN) pytest -s tests/faults

bench: env ## every benchmark in benchmarks/
	@for file in benchmarks/[!_]*.py; do \
	  if [ -f "$$file" ]; then echo "== $$file"; $(RUN) python "$$file"; fi; \
	done

clean: ## what tools left behind; results/ and .venv stay
	rm -rf .pytest_cache .ruff_cache .hypothesis dist build workflow_scripts/*.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
