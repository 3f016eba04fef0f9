#!/usr/bin/env bash
# Writes every hash lock in this folder from pyproject.toml: `bash envs/lock.sh`, with uv on PATH and a package index.
#   <backend>-py<minor>.txt           cpu, cuda13: Linux x86_64 (glibc >= 2.35); metal: macOS >= 14, Apple silicon
#   <backend>-aarch64-py<minor>.txt   cpu, cuda13: Linux aarch64 (glibc >= 2.35)
#   bootstrap.txt                     uv itself, any platform
# A lock holds versions and hashes only: no URL, no index option. Where it installs from is the machine's setting.
# Pins stay as they are unless they must move; `bash envs/lock.sh --upgrade` moves them all.
set -euo pipefail
cd "$(dirname "$0")/.."
export MACOSX_DEPLOYMENT_TARGET=14.0 # mlx has no wheel for the 13.0 that uv assumes

compile() { # name, uv platform, extra, further options of uv
  local name=$1 platform=$2 extra=$3 minor
  shift 3
  for minor in 11 12 13; do
    echo "envs/$name-py3$minor.txt"
    uv pip compile --quiet --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
      --extra "$extra" --extra dev --python-version "3.$minor" --python-platform "$platform" \
      --output-file "envs/$name-py3$minor.txt" "$@" pyproject.toml
  done
}

compile cpu x86_64-manylinux_2_35 cpu "$@"
compile cpu-aarch64 aarch64-manylinux_2_35 cpu "$@"
compile cuda13 x86_64-manylinux_2_35 cuda13 "$@"
compile cuda13-aarch64 aarch64-manylinux_2_35 cuda13 "$@"
compile metal aarch64-apple-darwin metal "$@"

echo envs/bootstrap.txt
echo uv | uv pip compile --quiet --generate-hashes --no-header --no-annotate --no-emit-index-url --universal \
  --python-version 3.11 --output-file envs/bootstrap.txt "$@" -

if grep -nE '://|^ *--?(index|extra-index|find-links|trusted|i |f )' envs/*.txt; then
  echo "a lock names an index or a URL: see above" >&2
  exit 1
fi
