#!/usr/bin/env python3
"""Writes a mix of everyday questions to a jsonl file, for `rondo bench rollout`.

Most questions have an answer of a few words, some of a paragraph, few of a page, and nothing tells them apart but
their text: response lengths have a heavy tail, and the samples of one prompt resemble each other in length. No
ground truth: nothing is scored. The file is a function of the options alone: choices come from SHA-256, not from a
random module whose algorithms may change.
"""

import argparse
import hashlib
import json
import os
import sys

# (share of the prompts in percent, questions)
KINDS = [
    (50, ["What is the capital of {place}? Answer with one word.",
          "Name one thing that is made of {stuff}. Answer with one word.",
          "Is {stuff} heavier than water? Answer yes or no.",
          "Translate \"{stuff}\" into French. Answer with the word alone."]),
    (30, ["Explain in two or three sentences what {stuff} is used for.",
          "Give three facts about {place}.",
          "Describe {place} to a child in one paragraph.",
          "Why is {stuff} expensive or cheap? Answer briefly."]),
    (20, ["Write a long story about a child from {place} who finds a piece of {stuff}.",
          "Write a detailed guide for a week of travel in {place}, day by day.",
          "Explain step by step, in detail, how {stuff} is produced, from the raw material to the shop.",
          "Write an essay about the history of {place}."]),
]
PLACES = ["France", "Japan", "Kenya", "Peru", "Norway", "Egypt", "Canada", "Vietnam", "Portugal", "Mexico", "Iceland",
          "India", "Greece", "Chile", "Morocco", "Poland"]
STUFF = ["iron", "paper", "glass", "cotton", "gold", "rubber", "salt", "leather", "wool", "copper", "silk", "clay",
         "wood", "sugar", "coal", "cork"]


def choose(key, options):
    return options[int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % len(options)]


def question(index):
    share = choose("kind:{}".format(index), range(100))
    for percent, questions in KINDS:
        if share < percent:
            text = choose("question:{}".format(index), questions)
            return text.format(place=choose("place:{}".format(index), PLACES),
                               stuff=choose("stuff:{}".format(index), STUFF))
        share -= percent
    raise AssertionError("the shares do not add up to 100")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="the jsonl file to write")
    parser.add_argument("--count", type=int, default=256, help="number of prompts (default 256)")
    args = parser.parse_args()
    if args.count < 1:
        sys.exit("--count must be at least 1, is {}".format(args.count))
    rows = [{"data_source": "rondo/chat_mix", "prompt": [{"role": "user", "content": question(index)}]}
            for index in range(args.count)]
    try:
        os.makedirs(os.path.dirname(os.path.abspath(args.file)), exist_ok=True)
        with open(args.file, "w", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    except OSError as error:
        sys.exit("cannot write {}: {}".format(args.file, error.strerror))


if __name__ == "__main__":
    main()
