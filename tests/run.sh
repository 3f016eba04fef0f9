#!/usr/bin/env bash
# Every check of the project, in order, with its seconds; stops at the first that fails (`make test`).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH=$PWD/.venv/bin:$PATH
table=

report() { printf '\n%-10s %8s  %s\n%b' step seconds result "$table"; }

step() { # name, command...
  local name=$1 start=$SECONDS result=passed
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" || result=FAILED
  table+=$(printf '%-10s %8d  %s' "$name" $((SECONDS - start)) "$result")'\n'
  echo "== $name: $result in $((SECONDS - start)) s"
  if [ "$result" = FAILED ]; then
    report
    echo "stopped at: $name" >&2
    exit 1
  fi
}

step env bash envs/setup.sh
step ruff ruff check .
step format ruff format --check .
step snakefmt snakefmt --check Snakefile rules
step lint snakemake --lint
step types pyright
step unit pytest tests/unit tests/contract
step dag pytest tests/dag tests/faults tests/mutation
step e2e pytest tests/e2e
report
