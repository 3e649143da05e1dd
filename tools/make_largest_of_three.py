#!/usr/bin/env python3
"""Writes the prompts of the "largest of three" task: train.jsonl and test.jsonl.

A prompt is a conversation of two solved examples and the question, to be rendered without a system turn. The
answer is a bare number, scored by exact match. No set of three numbers occurs twice, in whatever order, within
a file, across the two files, or as an example. The files are a function of the options alone: the numbers come
from SHA-256, not from a random module whose algorithms may change.
"""

import argparse
import hashlib
import itertools
import json
import os
import sys

DATA_SOURCE = "rondo/largest_of_three"
EXAMPLES = ((42, 51, 35), (23, 71, 68))
LOWEST, HIGHEST = 10, 99


def question(numbers):
    return "Largest of {}, {}, {}?".format(*numbers)


def shuffled_triples(seed):
    """Every usable set of three numbers once, in a pseudo-random order, its numbers in a pseudo-random order."""
    taken = {tuple(sorted(example)) for example in EXAMPLES}
    keyed = []
    for triple in itertools.combinations(range(LOWEST, HIGHEST + 1), 3):
        if triple not in taken:
            digest = hashlib.sha256("{}:{}-{}-{}".format(seed, *triple).encode()).digest()
            keyed.append((digest, triple))
    keyed.sort()
    orders = list(itertools.permutations(range(3)))
    for digest, triple in keyed:
        order = orders[int.from_bytes(digest[16:], "big") % len(orders)]
        yield tuple(triple[i] for i in order)


def row(numbers, split, index):
    messages = []
    for example in EXAMPLES:
        messages.append({"role": "user", "content": question(example)})
        messages.append({"role": "assistant", "content": str(max(example))})
    messages.append({"role": "user", "content": question(numbers)})
    return {
        "data_source": DATA_SOURCE,
        "prompt": messages,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(max(numbers))},
        "extra_info": {"split": split, "index": index},
    }


def write(path, rows):
    """Writes whole or not at all."""
    with open(path + ".tmp", "w", encoding="utf-8", newline="\n") as file:
        for item in rows:
            file.write(json.dumps(item, ensure_ascii=False) + "\n")
    os.replace(path + ".tmp", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="where train.jsonl and test.jsonl go; made if missing")
    parser.add_argument("--train", type=int, default=1024, help="training prompts (default %(default)s)")
    parser.add_argument("--test", type=int, default=64, help="held-out prompts (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    options = parser.parse_args()
    if options.train < 1 or options.test < 1:
        parser.error("--train and --test must be at least 1")

    triples = list(shuffled_triples(options.seed))
    if options.train + options.test > len(triples):
        parser.error("there are only {} sets of three two-digit numbers".format(len(triples)))
    os.makedirs(options.folder, exist_ok=True)
    # Held-out prompts come first, so that another --train leaves them as they are.
    for split, part in (("test", triples[: options.test]), ("train", triples[options.test :][: options.train])):
        path = os.path.join(options.folder, split + ".jsonl")
        write(path, (row(numbers, split, i) for i, numbers in enumerate(part)))
        print("wrote {} prompts to {}".format(len(part), path))


if __name__ == "__main__":
    sys.exit(main())
