#!/usr/bin/env bash
# Installs, builds and passes every test: unit, end to end, and against the oracles (transformers, tokenizers, TRL …).
# Options are passed on to ctest, e.g. scripts/test.sh -L unit.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --oracle
source scripts/environment.sh
printf '== building\n'
rondo_build release all "-DRONDO_ORACLE_PYTHON=$RONDO_ORACLE_ENV/bin/python"
printf '== testing\n'
exec ctest --preset release --parallel "$(nproc)" "$@"
