# Where the scripts keep things; sourced, from the project's root.
RONDO_CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/rondo"
RONDO_SMOLLM2_VERSION=0.1.2
RONDO_MODEL_DIR="models/SmolLM2-135M-Instruct"
# key FILE: the first digits of its hash, so that a changed list makes a new environment.
rondo_key() { sha256sum "$1" | cut -c1-12; }
RONDO_RUNTIME_ENV="$RONDO_CACHE/runtime-$(rondo_key scripts/runtime-requirements.txt)"
RONDO_ORACLE_ENV="$RONDO_CACHE/oracle-$(rondo_key scripts/oracle-requirements.txt)"

# rondo_build PRESET TARGET [cmake option …]: configures where needed and builds, quietly unless it fails.
rondo_build() {
  local preset=$1 target=$2
  shift 2
  cmake --preset "$preset" "$@" >/dev/null
  cmake --build --preset "$preset" --target "$target"
}
