"""Checks the rule rewards against regular expressions and decimal arithmetic on random responses.

The GSM8K rules are written here from verl's published description; last_number from its definition in number.h, as
one regular expression and an exact Decimal comparison; exact_match with str methods.
"""

import argparse
import decimal
import json
import os
import random
import re
import subprocess
import sys
import tempfile

FORMAT_SCORE = 0.125
PIECES = ["#### ", "####", "##", "#", " ", "\n", "-", "+", ".", ",", "$", "0", "7", "72", "1,234", "1234567", "-3",
          "0.50", ".5", "x", "answer", "é", "日本", "😀", "(", ")", "]", "=", "%", "\u00a0", "٣", "\\", '"']
TRUTHS = ["72", "-3", "1234", "0.5", "0", "7", "1,234", "."]


def gsm8k(response, truth):
    found = re.findall(r"#### (\-?[0-9\.\,]+)", response[-300:])
    return found[-1].replace(",", "").replace("$", "") if found else None, truth


def gsm8k_flexible(response, truth):
    found = re.findall(r"(\-?[0-9\.\,]+)", response[-300:])
    proper = [number for number in found if number not in ("", ".")]
    return (proper or found)[-1] if found else None, truth


def last_number(response, truth):
    number = r"(?:(?<![0-9A-Za-z)\]}])[-+])?(?:(?:[0-9]{1,3}(?:,[0-9]{3}(?![0-9]))+|[0-9]+)(?:\.[0-9]+)?|(?<![0-9])\.[0-9]+)"
    found = re.findall(number, response, re.ASCII)
    exact = decimal.Context(prec=10000)

    def value(text):
        return exact.create_decimal(text.replace(",", ""))

    return value(found[-1]) if found else None, value(truth)


def expected_score(rule, response, truth):
    if rule is None:
        answer = response.strip(" \t\n\v\f\r")
        return float(answer == truth or (answer[-1:] == "." and answer[:-1] == truth))
    answer, wanted = rule(response, truth)
    return 0.0 if answer is None else 1.0 if answer == wanted else FORMAT_SCORE


def random_response(rng, truth):
    if rng.random() < 0.1:  # close to a bare answer
        spaces = ["", "", " ", "\n\t"]
        return rng.choice(spaces) + truth + rng.choice(["", ".", "..", " .", "!"]) + rng.choice(spaces)
    pieces = [rng.choice(PIECES) for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 200]))]
    if rng.random() < 0.5:
        pieces.append(rng.choice(["#### ", "", " "]) + truth)
        pieces += [rng.choice(PIECES) for _ in range(rng.choice([0, 0, 1, 2, 250]))]
    return "".join(pieces)


def check(probe, name, rule, rng, folder, count):
    truths = [truth for truth in TRUTHS if name != "last_number" or truth != "."]
    cases = []
    for _ in range(count):
        truth = rng.choice(truths)
        cases.append((random_response(rng, truth), truth))
    path = os.path.join(folder, name + ".jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for response, truth in cases:
            row = {"data_source": "any", "extra_info": {"response": response}, "reward_model": {"ground_truth": truth}}
            file.write(json.dumps(row, ensure_ascii=rng.random() < 0.5) + "\n")
    format_score = FORMAT_SCORE if rule else 0.0
    run = subprocess.run([probe, name, str(format_score), path], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        sys.exit("{}: the probe failed: {}".format(name, run.stderr))
    scores = [float(line) for line in run.stdout.split()]
    if len(scores) != count:
        sys.exit("{}: {} scores for {} responses".format(name, len(scores), count))
    kinds = {}
    for (response, truth), score in zip(cases, scores):
        wanted = expected_score(rule, response, truth)
        if score != wanted:
            sys.exit("{}: {} where {} is right, for {!r} with ground truth {!r}".format(
                name, score, wanted, response, truth))
        kinds[score] = kinds.get(score, 0) + 1
    if min(kinds.get(score, 0) for score in {0.0, 1.0, format_score}) < count // 100:
        sys.exit("{}: the responses do not cover every score: {}".format(name, kinds))
    print("{}: {} responses agree, by score {}".format(name, count, dict(sorted(kinds.items()))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reward_probe", required=True)
    parser.add_argument("--model")
    options = parser.parse_args()
    rng = random.Random(20251129)
    rules = {"gsm8k": gsm8k, "gsm8k_flexible": gsm8k_flexible, "last_number": last_number, "exact_match": None}
    with tempfile.TemporaryDirectory() as folder:
        for name, rule in rules.items():
            check(options.reward_probe, name, rule, rng, folder, 20000)


if __name__ == "__main__":
    main()
