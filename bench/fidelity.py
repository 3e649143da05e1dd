#!/usr/bin/env python3
"""How well `rondo simulate` predicts `rondo bench rollout` on this machine: total seconds, policy by policy.

    bench/fidelity.py                                                    # two instances, step-by-step sums
    bench/fidelity.py --policies fifo,seer --repeats 1 data.train_batch_size=2 data.max_response_length=64    # small

Records the lengths of one real step, measures the engine's steps (`rondo profile`), replays the lengths on real instances and
on simulated ones with the same settings, and prints a row per policy. Settings (key=value) go to all of it. Needs the model and
the data of examples/step_sums.toml (scripts/setup.sh; tools/make_step_sums.py data/step_sums), and a machine that is otherwise idle.
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KV_BYTES_PER_TOKEN = 30 * 2 * 3 * 64 * 2  # SmolLM2-135M: layers, K and V, heads, their size, fp16
BLOCK_TOKENS = 64
# KV for some thousand tokens, so that schedules matter.
SETTINGS = {"data.shuffle": "false", "rollout.instances": "2", "engine.kv_memory": "64MiB", "engine.batch.max_running": "64",
            "rollout.chunk_tokens": "64"}
UNITS = {"MiB": 1 << 20, "GiB": 1 << 30}


def rondo(args, command, *rest):
    done = subprocess.run([args.rondo, command, *map(str, rest)], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"rondo {command} failed:\n{done.stdout[-2000:]}{done.stderr}")
    return done.stdout


def rows_of(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def record_lengths(args, settings, folder):
    """The responses of one real step, as the dump that both sides read."""
    rondo(args, "train", args.config, *settings, "data.val_files=[]", "trainer.total_steps=1", f"trainer.run_dir={folder}/run")
    (dump,) = Path(folder, "run", "rollouts").glob("*.jsonl")
    return dump


def profile(args, settings, folder):
    """A pool of its own, in which batches fit that are larger than any of the rollout: beyond the largest, times are guessed."""
    output = rondo(args, "profile", args.config, *settings, "engine.kv_memory=512MiB", f"rollout.spec.profile_folder={folder}")
    return re.search(r"kept in (.*)", output)[1]


def kv_tokens(size):
    number, unit = re.fullmatch(r"(\d+)(MiB|GiB)", size).groups()
    return int(number) * UNITS[unit] // (KV_BYTES_PER_TOKEN * BLOCK_TOKENS) * BLOCK_TOKENS


def simulated_settings(values, dump, step_cost):
    settings = {"device.preset": "cpu", "model.preset": "smollm2-135m", "engine.step_cost_file": step_cost,
                "engine.kv_tokens": kv_tokens(values["engine.kv_memory"]), "cluster.instances": values["rollout.instances"],
                "cluster.max_running": values["engine.batch.max_running"], "cluster.chunk_overhead_ms": 0,
                "schedule.chunk_tokens": values["rollout.chunk_tokens"], "trace.file": dump}
    if "data.max_response_length" in values:
        settings["trace.max_new_tokens"] = values["data.max_response_length"]
    return [f"{key}={value}" for key, value in settings.items()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*", help="key=value, as `rondo bench rollout` takes them")
    parser.add_argument("--rondo", default=ROOT / "build/release/src/cli/rondo")
    parser.add_argument("--config", default="examples/step_sums.toml")
    parser.add_argument("--policies", default="group_round_robin,fifo,seer,least_attained,oracle_lfs")
    parser.add_argument("--repeats", type=int, default=5, help="of each policy on real instances; the median counts")
    args = parser.parse_args()
    values = {**SETTINGS, **dict(setting.split("=", 1) for setting in args.settings)}
    settings = [f"{key}={value}" for key, value in values.items()]
    with tempfile.TemporaryDirectory(prefix="rondo_fidelity_") as folder:
        dump = record_lengths(args, settings, folder)
        step_cost = profile(args, settings, folder)
        real = rows_of(rondo(args, "bench", "rollout", args.config, *settings, "--policies", args.policies, "--lengths", dump,
                             "--repeats", args.repeats))
        simulated = rows_of(rondo(args, "simulate", *simulated_settings(values, dump, step_cost),
                                  f"compare.variants={args.policies}", "--json"))
    print(f"{real[0]['responses']} responses, {real[0]['tokens']} tokens, {values['rollout.instances']} instances")
    print(f"{'policy':<20} {'predicted s':>11} {'real s':>8} {'least':>8} {'most':>8} {'predicted / real':>17}")
    for row in simulated:
        seconds = [r["seconds"] for r in real if r["variant"] == row["variant"]]
        median = statistics.median(seconds)
        print(f"{row['variant']:<20} {row['seconds']:>11.2f} {median:>8.2f} {min(seconds):>8.2f} {max(seconds):>8.2f} "
              f"{row['seconds'] / median:>17.2f}")


if __name__ == "__main__":
    main()
