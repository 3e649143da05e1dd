"""Reads lines "NAME<tab>JSON object" of rondo and its peer in turn; writes a table and a JSON file, prints the table."""

import argparse
import datetime
import json
import platform
import statistics
import sys
from pathlib import Path


def spread(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def processor():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def figures(numbers):
    return " / ".join(f"{numbers[key]:.3g}" for key in ("min", "median", "max"))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", required=True, help="the peer's name and version")
    parser.add_argument("--out", type=Path, required=True, help="path of the results without suffix")
    arguments = parser.parse_args()

    rounds = {"rondo": [], "arctic": []}
    for line in sys.stdin:
        name, answer = line.split("\t", 1)
        rounds[name].append(json.loads(answer))
    pairs = list(zip(rounds["rondo"], rounds["arctic"], strict=True))
    if not pairs:
        sys.exit("report.py: no measurement to report")
    results = {
        case: {
            "rondo": spread([rondo[case] for rondo, _ in pairs]),
            "peer": spread([peer[case] for _, peer in pairs]),
            "peer over rondo": spread([peer[case] / rondo[case] for rondo, peer in pairs]),
        }
        for case in pairs[0][0]
    }
    about = {
        "date": datetime.date.today().isoformat(),
        "processor": processor(),
        "peer": arguments.peer,
        "rounds": len(pairs),
    }
    arguments.out.with_suffix(".json").write_text(json.dumps(about | {"results": results}, indent=1) + "\n")
    lines = [
        f"{about['date']}, {about['processor']}, {len(pairs)} rounds in turn; processor time; min / median / max.",
        "",
        f"| 64 siblings of 2000 tokens, depth 24, drafts of 8 | rondo | {arguments.peer} | peer / rondo |",
        "|---|---:|---:|---:|",
        *(
            f"| {case} | {figures(r['rondo'])} | {figures(r['peer'])} | {figures(r['peer over rondo'])} |"
            for case, r in results.items()
        ),
    ]
    table = "\n".join(lines) + "\n"
    arguments.out.with_suffix(".md").write_text(table)
    print(table, end="")


if __name__ == "__main__":
    main()
