#!/usr/bin/env bash
# The unit tests under AddressSanitizer with UBSan, and under ThreadSanitizer: scripts/sanitize.sh [asan|tsan]
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
for preset in "${@:-asan tsan}"; do
  for one in $preset; do
    printf '== %s\n' "$one"
    rondo_build "$one" all
    ctest --preset "$one" --parallel "$(nproc)"
  done
done
