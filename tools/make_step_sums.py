#!/usr/bin/env python3
"""Writes lists of numbers to be added up step by step: train.jsonl and test.jsonl.

The response is free text, a line for each addition, that ends in "#### N"; it is scored by GSM8K's rule. A solved
example, the turn before the question, shows the form. Most lists are short and a few very long (a list has more than
k numbers with probability 1/k, up to a limit), and so are the responses: what rollout has to cope with. No list
occurs twice, in whatever order, within a file, across the two files, or as the example. The files are a function of
the options alone: the numbers come from SHA-256, not from a random module whose algorithms may change.
"""

import argparse
import hashlib
import json
import os
import sys

DATA_SOURCE = "rondo/step_sums"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
HIGHEST = 50
EXAMPLE = (21, 4, 36)


class Numbers:
    """The pseudo-random integers of one key, one after the other."""

    def __init__(self, key):
        self.key = key
        self.count = 0

    def below(self, bound):
        digest = hashlib.sha256("{}:{}".format(self.key, self.count).encode()).digest()
        self.count += 1
        return int.from_bytes(digest[:16], "big") * bound >> 128


def question(terms):
    return "Add up {}. {}".format(", ".join(map(str, terms)), INSTRUCTION)


def worked_solution(terms):
    lines = []
    so_far = terms[0]
    for term in terms[1:]:
        lines.append("{} + {} = {}".format(so_far, term, so_far + term))
        so_far += term
    return "\n".join(lines + ["#### {}".format(so_far)])


def row(terms, split, index):
    return {
        "data_source": DATA_SOURCE,
        "prompt": [
            {"role": "user", "content": question(EXAMPLE)},
            {"role": "assistant", "content": worked_solution(EXAMPLE)},
            {"role": "user", "content": question(terms)},
        ],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(sum(terms))},
        "extra_info": {"split": split, "index": index, "num_terms": len(terms),
                       "answer": worked_solution(terms)},
    }


def distinct_lists(seed, longest):
    seen = {tuple(sorted(EXAMPLE))}
    numbers = Numbers("step_sums:{}".format(seed))
    while True:
        length = min(1 + 65536 // (1 + numbers.below(65536)), longest)
        for _ in range(1000):
            terms = tuple(1 + numbers.below(HIGHEST) for _ in range(length))
            if tuple(sorted(terms)) not in seen:
                break
        else:
            sys.exit("there are too few different lists of {} numbers; ask for fewer prompts".format(length))
        seen.add(tuple(sorted(terms)))
        yield terms


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
    parser.add_argument("--longest", type=int, default=32, help="most numbers in a list (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    options = parser.parse_args()
    if options.train < 1 or options.test < 1:
        parser.error("--train and --test must be at least 1")
    if options.longest < 2:
        parser.error("--longest must be at least 2")

    lists = distinct_lists(options.seed, options.longest)
    os.makedirs(options.folder, exist_ok=True)
    # Held-out prompts come first, so that another --train leaves them as they are.
    for split, size in (("test", options.test), ("train", options.train)):
        path = os.path.join(options.folder, split + ".jsonl")
        write(path, (row(next(lists), split, i) for i in range(size)))
        print("wrote {} prompts to {}".format(size, path))


if __name__ == "__main__":
    sys.exit(main())
