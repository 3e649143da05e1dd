"""A checkpoint of a short run against transformers: it loads without a word, and both continue a text alike.

Greedy responses of `rondo generate` are teacher-forced through transformers in fp32. Where its best token leads
the next by more than MARGIN, ours must be that token; log-probabilities may differ by half of it.

MARGIN. With model.dtype = fp32 the two differ by the rounding of fp32 sums alone: logits of at most a few tens,
errors near 2^-24 of the terms of some thousand summands, far below 1e-3. With fp16, keys and values are rounded to
11 bits: a relative error of 2^-12 each, times logits of a few tens and a few such layers that add up: below 0.1.
"""

import argparse
import json
import logging
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

MARGIN = {"fp32": 1e-3, "fp16": 0.1}
# Below this share of tokens beyond the margin the comparison says nothing.
MIN_DECIDED = 0.5


def require(condition, message):
    if not condition:
        sys.exit(f"checkpoint_oracle_test: {message}")


def run(binary, *args):
    result = subprocess.run([binary, *map(str, args)], capture_output=True, text=True)
    require(result.returncode == 0, f"{args[0]} failed: {result.stderr}")
    return result.stdout


class Listener(logging.Handler):
    """Keeps every warning of the transformers library."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def load_silently(folder):
    """The model and the tokenizer; any warning on the way is a failure."""
    listener = Listener()
    logging.getLogger("transformers").addHandler(listener)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, info = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
        tokenizer = AutoTokenizer.from_pretrained(folder)
    logging.getLogger("transformers").removeHandler(listener)
    own = [str(w.message) for w in caught if issubclass(w.category, (UserWarning, FutureWarning))]
    require(not listener.messages and not own, f"loading {folder} warns: {listener.messages + own}")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        require(not info[kind], f"loading {folder}: {kind} {info[kind]}")
    return model.eval(), tokenizer


def check_response(row, model, margin):
    """Compares one greedy response; returns how many of its tokens were decided beyond the margin."""
    prompt, response = row["prompt_tokens"], row["response_tokens"]
    with torch.no_grad():
        logits = model(torch.tensor([prompt + response[:-1]])).logits[0, len(prompt) - 1:].float()
    logprobs = torch.log_softmax(logits, dim=-1)
    best = torch.topk(logits, 2, dim=-1)
    decided = 0
    for i, token in enumerate(response):
        difference = abs(logprobs[i, token].item() - row["log_probs"][i])
        require(difference < margin / 2, f"prompt {row['prompt_index']}, token {i}: log-probabilities differ by {difference}")
        lead = (best.values[i, 0] - best.values[i, 1]).item()
        if lead <= margin:
            continue
        decided += 1
        require(best.indices[i, 0].item() == token,
                f"prompt {row['prompt_index']}, token {i}: ours is {token}, transformers' {best.indices[i, 0].item()} "
                f"leads by {lead}")
    return decided


def check_tokenizer(row, tokenizer):
    require(tokenizer.encode(row["prompt"], add_special_tokens=False) == row["prompt_tokens"],
            f"prompt {row['prompt_index']}: the tokenizer that was written gives other tokens")
    text = tokenizer.decode(row["response_tokens"], skip_special_tokens=True, clean_up_tokenization_spaces=False)
    if "\ufffd" not in text:  # bytes that are no text are shown in more than one way
        require(text == row["response"], f"response {row['response']!r} reads {text!r}")


def check_checkpoint(rondo, folder, dtype, prompts, settings):
    written = json.loads((folder / "config.json").read_text())
    name = {"fp32": "float32", "fp16": "float16"}[dtype]
    require(name in (written.get("dtype"), written.get("torch_dtype")), f"config.json does not say {name}")
    model, tokenizer = load_silently(folder)
    require(model.dtype == getattr(torch, name), f"{folder} loads as {model.dtype}, not {name}")
    model = model.float()
    for run_dtype, margin in MARGIN.items():
        output = run(rondo, "generate", f"model.path={folder}", f"model.dtype={run_dtype}", "rollout.temperature=0", "data.max_prompt_length=128",
                     "rollout.n=1", "--json", *settings, *[part for text in prompts for part in ("--prompt", text)])
        rows = [json.loads(line) for line in output.splitlines()]
        require(len(rows) == len(prompts), f"{len(rows)} responses to {len(prompts)} prompts")
        tokens = decided = 0
        for row, text in zip(rows, prompts):
            chat = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=False,
                                                 add_generation_prompt=True)
            require(row["prompt"] == chat, f"chat template: ours {row['prompt']!r}, transformers' {chat!r}")
            check_tokenizer(row, tokenizer)
            tokens += len(row["response_tokens"])
            decided += check_response(row, model, margin)
        require(decided >= MIN_DECIDED * tokens, f"only {decided} of {tokens} tokens lead by more than {margin}")
        print(f"{folder.name} {dtype} run as {run_dtype}: {decided} of {tokens} tokens decided, all equal")


def train(rondo, scratch, model, dtype, settings):
    """Trains a short run; returns its checkpoint."""
    data = scratch / "train.jsonl"
    rows = [{"prompt": f"Name a number near {i}.", "data_source": "oracle", "label": str(i)} for i in range(4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_dir = scratch / f"run_{dtype}"
    run(rondo, "train", f"model.path={model}", f"model.dtype={dtype}", f"data.train_files={data}", "rollout.n=4",
        "data.train_batch_size=2", "data.max_prompt_length=64", "reward.function=last_number", "reward.format_score=0.25",
        f"trainer.run_dir={run_dir}", *settings)
    log = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    require(sum(row["actor/updates"] for row in log) > 0, "the run updated nothing; the check would prove nothing")
    checkpoints = run_dir / "checkpoints"
    return checkpoints / (checkpoints / "latest").read_text().strip()


def check_tiny(rondo, probe, scratch):
    model = scratch / "model"
    run(probe, "model", model, 1)
    settings = ["engine.kv_memory=4MiB", "data.max_response_length=24"]
    for dtype in ("fp32", "fp16"):
        folder = train(rondo, scratch, model, dtype,
                       [*settings, "trainer.total_steps=3", "actor.optim.lr=1e-3", "data.max_response_length=12"])
        # A random model seldom has a clear favourite: half of the tokens with a lead is what there is.
        check_checkpoint(rondo, folder, dtype, ["hello", "1 + 1 = ?", "A longer prompt, with words."], settings)


def check_real(rondo, scratch, model):
    settings = ["engine.kv_memory=64MiB", "data.max_response_length=16", "data.max_prompt_length=64"]
    folder = train(rondo, scratch, model, "fp16", [*settings, "trainer.total_steps=1", "actor.optim.lr=1e-5"])
    check_checkpoint(rondo, folder, "fp16", ["What is the capital of France?", "Count from one to five."], settings)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rondo", required=True)
    parser.add_argument("--cli_probe", required=True)
    parser.add_argument("--model", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as scratch:
        check_tiny(args.rondo, args.cli_probe, Path(scratch))
    if not (args.model / "config.json").exists():
        print(f"skipped for the real model: no {args.model}")
        return
    with tempfile.TemporaryDirectory() as scratch:
        check_real(args.rondo, Path(scratch), args.model)


if __name__ == "__main__":
    main()
