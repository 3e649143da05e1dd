#!/usr/bin/env bash
# Measures rondo beside what people would run instead, on this machine:
#   bench/peers/run.sh [decode|prefill|train|tokenize|growth|all] [--quick] [--rounds N] [--peers A,B] [--rondo PATH] \
#     [--batches B,...] [--no-random-model | --no-given-model]
# Peers: llama.cpp, vLLM's CPU build and transformers (decode, prefill), TRL (train), tokenizers (tokenize), each in an
# environment of its own under ~/.cache/rondo; growth measures rondo alone. Results: build/peers/SECTION.md and .json.
# --peers names peers by type of weights, e.g. --peers llama_cpp:fp16,vllm:fp32. --rondo measures another binary than
# build/release's. A peer that cannot be had is a line "not available: reason" of the table.
set -euo pipefail
cd "$(dirname "$0")/../.."
source scripts/environment.sh
source bench/peers/environments.sh

section=all
rondo=
peers=
options=()
while [ $# -gt 0 ]; do
  case "$1" in
    decode | prefill | train | tokenize | growth | all) section=$1 ;;
    --rondo) rondo=$2; shift ;;
    --peers) peers=$2; options+=("$1" "$2"); shift ;;
    --rounds | --threads | --batches) options+=("$1" "$2"); shift ;;
    --quick | --no-random-model | --no-given-model) options+=("$1") ;;
    *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift
done

scripts/setup.sh --oracle
out=build/peers
mkdir -p "$out"
for peer in llama_cpp vllm; do
  case "$section" in decode | prefill | all) ;; *) continue ;; esac
  case ",${peers:-$peer:}," in *",$peer:"*) ;; *) continue ;; esac
  if ! peers_setup "$peer" >"$out/setup_$peer.log" 2>&1; then
    options+=(--unavailable "$peer=$(tail -n 1 "$out/setup_$peer.log" | cut -c1-200)")
  fi
done
for peer in llama_cpp vllm transformers trl tokenizers; do
  options+=(--python "$peer=$(peers_python "$peer")")
done

printf '== building\n'
rondo_build release rondo
rondo_build release text_probe
exec python3 bench/peers/run.py "$section" --model "$RONDO_MODEL_DIR" --out "$out" \
  --rondo "${rondo:-build/release/src/cli/rondo}" --text-probe build/release/src/text/text_probe "${options[@]}"
