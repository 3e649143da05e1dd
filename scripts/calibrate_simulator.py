#!/usr/bin/env python3
"""Fits settings of a simulated workload to published figures of group_round_robin, by random search.

    calibrate_simulator.py --rondo build/release/src/cli/rondo WORKLOAD.toml --tries 200 --seeds 4 \
        --target seconds=3957 --target tail_seconds=2301 --target preempted=13686@0.3 \
        --vary engine.step_overhead_ms=5:40 --vary lengths.shape=0.6:1.4

A target's error is log(simulated / wanted) / weight (after @, 0.05 by default); the sum of squares is minimised. Prints the
best settings, best first. The search has a seed of its own, so that it can be repeated.
"""
import argparse
import json
import math
import random
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor


FIRST_ALONE = ["schedule.policy=group_round_robin", "compare.variants=[]", "compare.published_speedup=[]",
               "compare.published_tail=[]"]


def parse_range(text):
    key, _, span = text.partition("=")
    low, _, high = span.partition(":")
    return key, float(low), float(high)


def parse_target(text):
    key, _, rest = text.partition("=")
    value, _, tolerance = rest.partition("@")
    return key, float(value), float(tolerance or 0.05)


def simulate(args, settings):
    overrides = [f"{key}={value:.6g}" for key, value in settings.items()]
    command = [args.rondo, "simulate", args.workload, *FIRST_ALONE, *args.fixed, *overrides, "--json", "--threads", "1",
               "--seeds", str(args.seeds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stderr.strip()
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {key: sum(row[key] for row in rows) / len(rows) for key in rows[0] if isinstance(rows[0][key], (int, float))}, ""


def loss(row, targets):
    total = 0.0
    for key, wanted, tolerance in targets:
        total += (math.log(max(row[key], 1e-3 * wanted) / wanted) / tolerance) ** 2
    return total


def draw(ranges, rng, best):
    """Half of the tries look around the best so far."""
    settings = {}
    for key, low, high in ranges:
        if best is not None:
            width = 0.15 * (high - low)
            settings[key] = min(high, max(low, rng.gauss(best[key], width)))
        else:
            settings[key] = rng.uniform(low, high)
    return settings


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("--set", dest="fixed", action="append", default=[], help="key=value")
    parser.add_argument("--rondo", required=True)
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--target", type=parse_target, action="append", default=[])
    parser.add_argument("--vary", type=parse_range, action="append", default=[])
    args = parser.parse_args()
    rng = random.Random(1)
    found = []
    begin = time.monotonic()
    with ThreadPoolExecutor(args.workers) as pool:
        for start in range(0, args.tries, args.workers * 4):
            if time.monotonic() - begin > args.seconds:
                print(f"stopped after {start} tries")
                break
            best = min(found, key=lambda f: f[0])[2] if found and (start // (args.workers * 4)) % 2 else None
            batch = [draw(args.vary, rng, best) for _ in range(args.workers * 4)]
            for settings, (row, error) in zip(batch, pool.map(lambda s: simulate(args, s), batch)):
                if row is None:
                    print("refused:", error)
                else:
                    found.append((loss(row, args.target), row, settings))
    found.sort(key=lambda f: f[0])
    for error, row, settings in found[:5]:
        shown = " ".join(f"{key}={row[key]:.4g}" for key, _, _ in args.target)
        print(f"error {error:.2f}: {shown} idle={row['idle_share']:.2f} spread={row['finish_spread']:.2f}")
        print("   ", " ".join(f"{key}={value:.4g}" for key, value in settings.items()))


if __name__ == "__main__":
    main()
