"""Checks the dataset reader, the rollout dumps and the prompt generators against Python and Hugging Face.

- read_prompts gives what json.loads gives, for random rows and for generated files;
- the command that the reader names for parquet does convert a parquet file;
- Python reads the log-probabilities of a dump back to the same fp32 bits;
- the generators write the same bytes every time, and no held-out question among the training ones;
- a "largest of three" prompt has the tokens that the recipe was tuned on.
"""

import argparse
import hashlib
import json
import os
import random
import re
import struct
import subprocess
import sys
import tempfile

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")

# The first held-out prompt in ChatML without a system turn, ready for the answer.
PINNED_IDS = [
    1, 4093, 198, 60, 938, 381, 282, 216, 36, 34, 28, 216, 37, 33, 28, 216, 35, 37, 47, 2, 198, 1, 520,
    9531, 198, 37, 33, 2, 198, 1, 4093, 198, 60, 938, 381, 282, 216, 34, 35, 28, 216, 39, 33, 28, 216,
    38, 40, 47, 2, 198, 1, 520, 9531, 198, 39, 33, 2, 198, 1, 4093, 198, 60, 938, 381, 282, 216, 41, 33,
    28, 216, 33, 38, 28, 216, 41, 40, 47, 2, 198, 1, 520, 9531, 198]


def expect(condition, message):
    if not condition:
        sys.exit(message)


def probe_rows(probe, *paths):
    run = subprocess.run([probe, "rows", *paths], capture_output=True, check=False)
    expect(run.returncode == 0, "reading {} failed: {}".format(paths, run.stderr.decode()))
    fields = []
    at = 0
    while at < len(run.stdout):
        colon = run.stdout.index(b":", at)
        end = colon + 1 + int(run.stdout[at:colon])
        fields.append(run.stdout[colon + 1:end].decode())
        at = end + 1
    rows = []
    take = iter(fields)
    for index in take:
        row = {"index": int(index), "data_source": next(take), "truth": next(take), "extra": next(take),
               "text": next(take)}
        row["messages"] = [{"role": next(take), "content": next(take)} for _ in range(int(next(take)))]
        rows.append(row)
    return rows


def check_rows(probe, path):
    with open(path, encoding="utf-8") as file:
        expected = [json.loads(line) for line in file if line.strip()]
    rows = probe_rows(probe, path)
    expect(len(rows) == len(expected), "{}: {} rows, not {}".format(path, len(rows), len(expected)))
    for i, (row, want) in enumerate(zip(rows, expected)):
        prompt = want["prompt"]
        same = (row["index"] == i and row["data_source"] == want["data_source"]
                and (row["text"] == prompt if isinstance(prompt, str) else row["messages"] == prompt)
                and row["truth"] == str(want["reward_model"]["ground_truth"])
                and json.loads(row["extra"]) == want["extra_info"])
        expect(same, "{}: row {} was read as {}, not {}".format(path, i, row, want))
    return expected


def random_text(rng):
    alphabet = ["a", " ", "\n", "\t", '"', "\\", "/", "\x00", "\x1f", "\x7f", "é", "日", "😀", "\u2028", "{", "]", "\ufeff"]
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, 30)))


def check_random_rows(probe, folder):
    rng = random.Random(20251129)
    path = os.path.join(folder, "random.jsonl")
    with open(path, "w", encoding="utf-8", newline="") as file:
        for _ in range(2000):
            chat = [{"role": rng.choice(["system", "user", "assistant"]), "content": random_text(rng)}
                    for _ in range(rng.randint(1, 4))]
            row = {"prompt": rng.choice([chat, random_text(rng)]), "data_source": random_text(rng),
                   "reward_model": {"ground_truth": rng.choice([random_text(rng), rng.randint(-10**18, 10**18),
                                                                rng.randint(-999, 999) / 8])},
                   "extra_info": rng.choice([{}, [], {random_text(rng): [1, None, True, rng.random()]}])}
            file.write(json.dumps(row, ensure_ascii=rng.random() < 0.5) + rng.choice(["\n", "\r\n", "\n\n"]))
    check_rows(probe, path)


def check_parquet_advice(probe, folder):
    import datasets

    source = os.path.join(folder, "source.jsonl")
    subprocess.run([sys.executable, os.path.join(TOOLS, "make_largest_of_three.py"), folder], check=True,
                   stdout=subprocess.DEVNULL)
    os.rename(os.path.join(folder, "test.jsonl"), source)
    parquet = os.path.join(folder, "rows.parquet")
    datasets.disable_progress_bars()
    cache = os.path.join(folder, "cache")
    datasets.load_dataset("json", data_files=source, cache_dir=cache)["train"].to_parquet(parquet)
    run = subprocess.run([probe, "rows", parquet], capture_output=True, text=True, check=False)
    expect(run.returncode == 1, "a parquet file was not refused")
    command = run.stderr.split("with Python: ")[1]
    environment = dict(os.environ, HF_DATASETS_CACHE=cache, HF_HUB_OFFLINE="1")
    subprocess.run([sys.executable, "-c", command], check=True, env=environment, capture_output=True)
    rows = probe_rows(probe, os.path.join(folder, "rows.jsonl"))
    wanted = probe_rows(probe, source)
    expect(len(rows) == 64, "{} of 64 rows are left after the conversion".format(len(rows)))
    for row, want in zip(rows, wanted):
        row["extra"], want["extra"] = json.loads(row["extra"]), json.loads(want["extra"])
        expect(row == want, "a row of a converted parquet file is {}, not {}".format(row, want))


def check_dump(probe, folder):
    subprocess.run([probe, "dump", folder], check=True)
    with open(os.path.join(folder, "step_0.jsonl"), encoding="utf-8") as file:
        row = json.loads(file.read())
    expect(len(row["log_probs"]) > 90000, "the dump has only {} numbers".format(len(row["log_probs"])))
    for bits, value in zip(row["response_tokens"], row["log_probs"]):
        got = struct.unpack("<i", struct.pack("<f", value))[0]
        expect(got == bits, "log-probability {} has the bits {:x}, not {:x}".format(value, got, bits))


def generate(script, folder, *options):
    run = subprocess.run([sys.executable, os.path.join(TOOLS, script), folder, *options], capture_output=True,
                         text=True, check=False)
    expect(run.returncode == 0, "{}: {}".format(script, run.stderr))
    files = {}
    for split in ("train", "test"):
        with open(os.path.join(folder, split + ".jsonl"), "rb") as file:
            files[split] = file.read()
    return files


def check_generator(probe, script, key, digests, folder):
    first = generate(script, os.path.join(folder, "a"))
    for split, digest in digests.items():
        got = hashlib.sha256(first[split]).hexdigest()
        expect(got == digest, "{}: {}.jsonl has changed: sha256 {}".format(script, split, got))
    fewer = generate(script, os.path.join(folder, "b"), "--train", "100")
    expect(fewer["test"] == first["test"], script + ": --train changes the held-out prompts")
    expect(first["train"].startswith(fewer["train"]), script + ": --train changes more than the number of prompts")
    other = generate(script, os.path.join(folder, "c"), "--seed", "2")
    expect(other["test"] != first["test"], script + ": --seed changes nothing")

    parts = {split: check_rows(probe, os.path.join(folder, "a", split + ".jsonl")) for split in ("train", "test")}
    expect(len(parts["test"]) == 64 and len(parts["train"]) == 1024, script + ": unexpected sizes")
    rows = parts["train"] + parts["test"]
    keys = [key(row["prompt"][-1]["content"]) for row in rows]
    expect(len(set(keys)) == len(rows), script + ": a question occurs twice")
    examples = {key(message["content"]) for message in rows[0]["prompt"][:-1] if message["role"] == "user"}
    expect(not examples & set(keys), script + ": a question is an example")
    return rows


def check_largest_of_three(probe, model, folder):
    def numbers(question):
        return tuple(sorted(int(n) for n in re.fullmatch(r"Largest of (\d\d), (\d\d), (\d\d)\?", question).groups()))

    digests = {"test": "f7efa8c0f0199e0af66f684d69fc09ed9d3f366da23f336da32afa71d93e4377",
               "train": "8fbbb2b597ca030369c7fc20cef9ea834b4063e0f62fcefb4400e3c167278bf9"}
    rows = check_generator(probe, "make_largest_of_three.py", numbers, digests, folder)
    for row in rows:
        three = numbers(row["prompt"][-1]["content"])
        expect(len(set(three)) == 3 and row["reward_model"]["ground_truth"] == str(three[-1]),
               "wrong question or answer: {}".format(row))
        expect([m["role"] for m in row["prompt"]] == ["user", "assistant"] * 2 + ["user"], "wrong turns")
        expect(row["prompt"][:2] == [{"role": "user", "content": "Largest of 42, 51, 35?"},
                                     {"role": "assistant", "content": "51"}], "wrong first example")

    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(model, "tokenizer.json"))
    prompts = ["".join("<|im_start|>{role}\n{content}<|im_end|>\n".format(**m) for m in row["prompt"])
               + "<|im_start|>assistant\n" for row in rows]
    for prompt in prompts:
        count = len(tokenizer.encode(prompt, add_special_tokens=False).ids)
        expect(count == 83, "a prompt of {} tokens: {}".format(count, prompt))
    ids = tokenizer.encode(prompts[1024], add_special_tokens=False).ids
    expect(ids == PINNED_IDS, "the first held-out prompt has the tokens {}".format(ids))


def check_step_sums(probe, folder):
    def terms(question):
        return tuple(sorted(int(n) for n in re.match(r"Add up ([0-9, ]+)\. ", question).group(1).split(", ")))

    digests = {"test": "2746abf6f62bc018880304d894c1005312554795d26e232b3cf6296f74b79c13",
               "train": "81cb7c5bcd92bc727125873775ca2a9fa780ee9306ea5f083eee7e3077ab31b3"}
    rows = check_generator(probe, "make_step_sums.py", terms, digests, folder)
    sizes = []
    for row in rows:
        numbers = terms(row["prompt"][-1]["content"])
        truth = row["reward_model"]["ground_truth"]
        expect(truth == str(sum(numbers)), "wrong answer: {}".format(row))
        expect(row["extra_info"]["answer"].endswith("\n#### " + truth), "the solution does not end in the answer")
        sizes.append(len(numbers))
    # P(more than k) = 1/k; five standard deviations of the count either way.
    for k in (2, 4, 8):
        mean = len(sizes) / k
        count = sum(size > k for size in sizes)
        deviation = (mean * (1 - 1 / k)) ** 0.5
        expect(abs(count - mean) < 5 * deviation, "{} lists have more than {} numbers".format(count, k))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data_probe", required=True)
    parser.add_argument("--model", required=True)
    options = parser.parse_args()
    if not os.path.exists(os.path.join(options.model, "tokenizer.json")):
        sys.exit("no tokenizer.json in {}; prepare the model first".format(options.model))
    with tempfile.TemporaryDirectory() as folder:
        for name in ("random", "dump", "parquet", "largest", "sums"):
            os.mkdir(os.path.join(folder, name))
        check_random_rows(options.data_probe, os.path.join(folder, "random"))
        check_dump(options.data_probe, os.path.join(folder, "dump"))
        check_largest_of_three(options.data_probe, options.model, os.path.join(folder, "largest"))
        check_step_sums(options.data_probe, os.path.join(folder, "sums"))
        check_parquet_advice(options.data_probe, os.path.join(folder, "parquet"))
    print("dataset rows, dumps and generators agree")


if __name__ == "__main__":
    main()
