#!/usr/bin/env bash
# From a fresh machine to a trained model: installs, builds, trains SmolLM2-135M-Instruct with GRPO on "largest of
# three", and prints the held-out accuracy before and after. Options are passed on to `rondo train`:
#   scripts/quickstart.sh trainer.total_steps=10 trainer.run_dir=runs/short
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/environment.sh
scripts/setup.sh
printf '== building\n'
rondo_build release rondo
printf '== training (stop with Ctrl-C; the same command goes on where it stopped)\n'
exec ./build/release/src/cli/rondo train examples/largest_of_three.toml "$@"
