#!/usr/bin/env python3
"""Writes sums of many parts, worked out step by step: train.jsonl and test.jsonl.

A prompt lists purchases and asks for the total. The response is free text, a line for each purchase, that ends in
"#### N"; it is scored by GSM8K's rule. A solved example, the turn before the question, shows the form. Most lists
are short and a few very long (a list has more than k purchases with probability 1/k, up to a limit), and so are the
responses: what rollout has to cope with. No question occurs twice, within a file or across the two. The files are a
function of the options alone: the numbers come from SHA-256, not from a random module whose algorithms may change.
"""

import argparse
import hashlib
import json
import os
import sys

DATA_SOURCE = "rondo/step_sums"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gwen", "Hugo")
THINGS = ("pens", "cups", "books", "hats", "lamps", "bags", "maps", "toys", "rugs", "pots", "fans", "keys")
MOST_OF_A_THING, HIGHEST_PRICE = 5, 9
EXAMPLE = ("Eva", ((2, "pens", 3), (4, "cups", 5), (3, "maps", 2)))


class Numbers:
    """The pseudo-random integers of one key, one after the other."""

    def __init__(self, key):
        self.key = key
        self.count = 0

    def below(self, bound):
        digest = hashlib.sha256("{}:{}".format(self.key, self.count).encode()).digest()
        self.count += 1
        return int.from_bytes(digest[:16], "big") * bound >> 128


def make_problem(numbers, longest):
    length = min(1 + 65536 // (1 + numbers.below(65536)), longest)
    name = NAMES[numbers.below(len(NAMES))]
    purchases = []
    for _ in range(length):
        count = 2 + numbers.below(MOST_OF_A_THING - 1)
        purchases.append((count, THINGS[numbers.below(len(THINGS))], 1 + numbers.below(HIGHEST_PRICE)))
    return name, tuple(purchases)


def question(problem):
    name, purchases = problem
    items = ["{} {} at {}".format(*purchase) for purchase in purchases]
    listed = ", ".join(items[:-1]) + " and " + items[-1]
    return "{} buys {}. How much is that in all? {}".format(name, listed, INSTRUCTION)


def total(problem):
    return sum(count * price for count, _, price in problem[1])


def worked_solution(problem):
    lines = []
    so_far = 0
    for count, thing, price in problem[1]:
        cost = count * price
        lines.append("{} {}: {} * {} = {}, {} + {} = {}".format(
            count, thing, count, price, cost, so_far, cost, so_far + cost))
        so_far += cost
    return "\n".join(lines + ["#### {}".format(so_far)])


def row(problem, split, index):
    return {
        "data_source": DATA_SOURCE,
        "prompt": [
            {"role": "user", "content": question(EXAMPLE)},
            {"role": "assistant", "content": worked_solution(EXAMPLE)},
            {"role": "user", "content": question(problem)},
        ],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(total(problem))},
        "extra_info": {"split": split, "index": index, "num_steps": len(problem[1]),
                       "answer": worked_solution(problem)},
    }


def distinct_problems(seed, longest):
    seen = {EXAMPLE[1]}
    numbers = Numbers("step_sums:{}".format(seed))
    while True:
        problem = make_problem(numbers, longest)
        if problem[1] not in seen:  # another name does not make another problem
            seen.add(problem[1])
            yield problem


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
    parser.add_argument("--longest", type=int, default=16, help="most purchases in a list (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    options = parser.parse_args()
    if options.train < 1 or options.test < 1:
        parser.error("--train and --test must be at least 1")
    if options.longest < 3:
        parser.error("--longest must be at least 3, or there are too few different problems")

    problems = distinct_problems(options.seed, options.longest)
    os.makedirs(options.folder, exist_ok=True)
    # Held-out prompts come first, so that another --train leaves them as they are.
    for split, size in (("test", options.test), ("train", options.train)):
        path = os.path.join(options.folder, split + ".jsonl")
        write(path, (row(next(problems), split, i) for i in range(size)))
        print("wrote {} prompts to {}".format(size, path))


if __name__ == "__main__":
    sys.exit(main())
