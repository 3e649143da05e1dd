#!/usr/bin/env bash
# Measures rondo's suffix tree beside that of arctic-inference (SuffixDecoding), both as C++ classes on the same
# sibling sequences, in turn:
#   bench/peers/suffix/run.sh [--rounds N]
# The peer's two source files come from its PyPI source distribution and are compiled here, with the flags that rondo
# gets; they live in ~/.cache/rondo (or $XDG_CACHE_HOME/rondo). Results: build/peers/suffix.md and suffix.json.
set -euo pipefail
cd "$(dirname "$0")/../../.."
source scripts/environment.sh

version=0.3.0
rounds=7
while [ $# -gt 0 ]; do
  case "$1" in
    --rounds) rounds=$2; shift ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

here=bench/peers/suffix
out=build/peers
peer=$RONDO_CACHE/peers-arctic-inference-$version
mkdir -p "$out"

# The distribution's set-up wants torch, which these files do not need. So pip fetches and unpacks it, fails at its
# metadata, and is told to leave the folder.
fetch_peer() {
  local work
  work=$(mktemp -d)
  python3 -m venv "$work/env"
  TMPDIR=$work "$work/env/bin/python" -m pip download --quiet --disable-pip-version-check --no-clean --no-deps \
    --no-build-isolation --no-binary arctic-inference --dest "$work" "arctic-inference==$version" \
    >"$out/suffix_setup.log" 2>&1 || true
  local source
  source=$(find "$work" -type d -path '*/csrc/suffix_decoding' | head -n 1)
  if [ -n "$source" ]; then
    mkdir -p "$peer"
    cp "$source"/*.h "$source/suffix_tree.cc" "$peer"
    touch "$peer/complete"
  fi
  rm -rf "$work"
}

[ -f "$peer/complete" ] || fetch_peer
[ -f "$peer/complete" ] || {
  echo "run.sh: arctic-inference $version could not be had from PyPI: see $out/suffix_setup.log" >&2
  exit 1
}

printf '== compiling\n'
binaries=$(mktemp -d)
trap 'rm -rf "$binaries"' EXIT
flags=(-std=c++20 -O3 -DNDEBUG -ffp-contract=off -Isrc -I"$here")
rondo_sources=(src/suffix/{continuation_store,continuation_table,draft,sibling_workload,suffix_tree}.cc
  src/base/{check,status}.cc)
g++ "${flags[@]}" "$here/rondo_driver.cc" "${rondo_sources[@]}" -lfmt -o "$binaries/rondo"
g++ "${flags[@]}" -I"$peer" "$here/arctic_driver.cc" "$peer/suffix_tree.cc" src/suffix/sibling_workload.cc \
  -o "$binaries/arctic"

for ((round = 1; round <= rounds; ++round)); do
  printf '== round %d of %d\n' "$round" "$rounds" >&2
  for name in rondo arctic; do
    printf '%s\t' "$name"
    "$binaries/$name"
  done
done | python3 "$here/report.py" --peer "arctic-inference $version" --out "$out/suffix"
