#!/usr/bin/env bash
# Makes .venv from this machine's lock, or does nothing when it is current (`make env`).
# PYTHON=<interpreter> and DRAFTLEDGER_BACKEND=cpu|cuda13|metal overrule the choice.
set -euo pipefail
cd "$(dirname "$0")/.."
own=$PWD/.venv/bin:
PATH=${PATH//"$own"/} # an activated .venv must not be built from itself
stamp=.venv/made-from

usable() {
  "$1" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null
}

find_python() {
  local candidates=(python3.13 python3.12 python3.11 python3) candidate
  if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
  for candidate in "${candidates[@]}"; do
    if usable "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  echo "env: no Python 3.11 to 3.13 with its venv module among: ${candidates[*]}; install one or set PYTHON" >&2
  return 1
}

fingerprint() {
  { echo "$PWD $python"; "$python" -VV; cat "$lock" envs/bootstrap.txt envs/setup.sh pyproject.toml; } | cksum
}

install_lock() {
  local index
  index=${PIP_INDEX_URL:-$(.venv/bin/python -m pip config get global.index-url 2>/dev/null || true)}
  if [ -n "$index" ]; then export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$index}"; fi # uv does not read pip's
  if .venv/bin/python -m pip install --quiet --require-hashes -r envs/bootstrap.txt &&
    .venv/bin/uv pip sync --quiet --compile-bytecode --python .venv/bin/python --require-hashes "$lock"; then
    return
  fi
  echo "env: uv could not install the lock; pip does it (slower)"
  .venv/bin/python -m pip install --quiet --require-hashes -r "$lock"
}

python=$(find_python)
lock=$("$python" envs/choose.py)
print=$(fingerprint)
if [ -x .venv/bin/python ] && [ "$(cat "$stamp" 2>/dev/null)" = "$print" ]; then
  echo "env: .venv is current ($lock)"
  exit
fi
echo "env: making .venv with $python from $lock"
"$python" -m venv --clear .venv
install_lock
.venv/bin/python -m pip install --quiet --no-deps --no-build-isolation --no-index --editable .
echo "$print" >"$stamp"
echo "env: .venv is ready after $SECONDS s"
