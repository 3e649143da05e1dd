"""Counts the instructions of a small decode and a small train step, so that a slow-down shows without a timer.

    instruction_count_test.py --probe PATH --build TEXT --recorded recorded.json [--update]

Runs the probe under callgrind (one thread, AVX2 kernels) and compares each count with the recorded one: more than 2 % off,
either way, fails. A faster kernel is as much a reason to record again as a slower one is to look. Counts belong to a
compiler and its flags; for a build without recorded counts the test is skipped, and --update records them.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CASES = ("decode", "train")
TOLERANCE = 0.02
SKIPPED = 77


def count(probe, case):
    """Instructions inside run_measured."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        command = [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={out}",
            "--collect-atstart=no",
            "--toggle-collect=run_measured",
            probe,
            case,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        return int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probe", required=True)
    parser.add_argument("--build", required=True, help="what the counts belong to")
    parser.add_argument("--recorded", type=Path, required=True)
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        print("skipped: valgrind is not installed (scripts/setup.sh --oracle)")
        return SKIPPED
    recorded = json.loads(args.recorded.read_text()) if args.recorded.exists() else {}
    if args.build not in recorded and not args.update:
        print(f"skipped: no counts are recorded for '{args.build}'; to record them, add --update")
        return SKIPPED
    counts = {case: count(args.probe, case) for case in CASES}
    if args.update:
        recorded[args.build] = counts
        args.recorded.write_text(json.dumps(recorded, indent=2) + "\n")
        return 0
    failed = False
    for case, value in counts.items():
        change = value / recorded[args.build][case] - 1
        failed |= abs(change) > TOLERANCE
        print(f"{case}: {value} instructions, {change:+.2%} against the recorded {recorded[args.build][case]}")
    if failed:
        print("A count moved by more than 2 %. If that is meant, record it: the same command with --update.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
