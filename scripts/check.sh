#!/usr/bin/env bash
# Formatting, layers, sizes, the configuration page, and clang-tidy.
#   scripts/check.sh --fix     formats instead of complaining
#   scripts/check.sh --quick   leaves clang-tidy out
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --checks >/dev/null
source scripts/environment.sh
mapfile -t files < <(git ls-files 'src/*.h' 'src/*.cc')

printf '== format\n'
if [ "${1:-}" = --fix ]; then
  clang-format -i "${files[@]}"
else
  clang-format --dry-run -Werror "${files[@]}"
fi

printf '== layers\n'
python3 tools/check_layers.py

printf '== docs/configuration.md\n'
rondo_build release rondo >/dev/null
./build/release/src/cli/rondo config --markdown | diff - docs/configuration.md ||
  { echo "docs/configuration.md is out of date: rondo config --markdown > docs/configuration.md" >&2; exit 1; }

[ "${1:-}" = --quick ] && exit 0
printf '== clang-tidy\n'
# Tests are compiled with all warnings but not analysed: the analyser needs minutes for each RapidCheck file.
printf '%s\n' "${files[@]}" | grep '\.cc$' | grep -vE '_(test|fuzz|bench|probe)\.cc$|^src/testing/' |
  xargs -P "$(nproc)" -n 4 clang-tidy -p build/release --quiet 2>/dev/null
printf '== all checks passed\n'
