# The peers' Python environments; sourced, from the project's root, behind scripts/environment.sh.
# Each lies in the cache folder under the hash of its pinned list, so that a changed list makes a new one.

# peers_hash FILE …: one key for several lists.
peers_hash() { cat "$@" | sha256sum | cut -c1-12; }

# What is compiled for this processor must not be found by another.
processor_flags() { grep -m 1 '^flags' /proc/cpuinfo; }

# peers_python NAME: the interpreter of a peer's environment.
peers_python() {
  local lists=bench/peers/requirements
  case "$1" in
    llama_cpp)
      printf '%s/peers-%s/bin/python\n' "$RONDO_CACHE" "$(peers_hash $lists/llama_cpp.txt <(processor_flags))"
      ;;
    vllm) printf '%s/peers-%s/bin/python\n' "$RONDO_CACHE" "$(peers_hash $lists/vllm.txt $lists/vllm-overrides.txt)" ;;
    *) printf '%s/bin/python\n' "$RONDO_ORACLE_ENV" ;;  # transformers, TRL and tokenizers: the oracles
  esac
}

# install_llama_cpp FOLDER: compiled here for this processor, as its users are told to.
install_llama_cpp() {
  CMAKE_ARGS="-DGGML_NATIVE=ON" "$1/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check \
    -r bench/peers/requirements/llama_cpp.txt
}

# install_vllm FOLDER: by uv, since pip cannot replace a requirement of a package.
install_vllm() {
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check uv==0.13.9
  "$1/bin/uv" pip install --quiet --python "$1/bin/python" --no-cache -r bench/peers/requirements/vllm.txt \
    --override bench/peers/requirements/vllm-overrides.txt
}

# peers_setup NAME: makes the environment of a peer, whole or not at all. Fails if a package is not to be had.
peers_setup() {
  local python folder
  python=$(peers_python "$1")
  folder=$(dirname "$(dirname "$python")")
  [ -f "$folder/complete" ] && return 0
  printf '== making the environment of %s in %s\n' "$1" "$folder"
  rm -rf "$folder"
  python3 -m venv "$folder" && "install_$1" "$folder" && touch "$folder/complete"
}
