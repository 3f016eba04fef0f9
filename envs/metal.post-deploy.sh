#!/usr/bin/env bash
# Run by `snakemake --sdm conda` inside the new environment, from the repository root.
set -euo pipefail
lock=$(DRAFTLEDGER_BACKEND=metal python envs/choose.py)
python -m pip install --require-hashes -r "$lock"
python -m pip install --no-deps --no-build-isolation --no-index --editable .
