"""The engine's forward pass and sampler against transformers, on tiny random Llamas and on the real model.

Tolerance. The truth is transformers' own code run in fp64 (rotary tables stay fp32, as in every precision). Its fp32 run
is off by some error, and so are we, in another order of summation: their blocked sums round less often than our single
ascending chain. Both errors are random walks of roundings along the same depth, so ours must stay within a small factor
of theirs (FACTOR), in the root mean square and at the worst logit. A wrong formula, position or weight is off by many
orders of magnitude more. Where K and V are rounded to fp16, a value near a tie may fall either way in each of the runs;
those flips dominate both errors, and the same comparison holds.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

sys.path.insert(0, str(Path(__file__).parents[1] / "testing"))
from fp64_reference import Fp64Torch, patched  # noqa: E402

FACTOR = 3.0
PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "List three prime numbers greater than 20 and say why they are prime.",
]


def require(condition, message):
    if not condition:
        sys.exit(f"engine_oracle_test: {message}")


class Probe:
    """engine_probe on one model folder."""

    def __init__(self, path, scratch):
        self.path = path
        self.scratch = scratch

    def run(self, command, folder, dtype, sequences, *args):
        lines = self.scratch / "sequences.txt"
        lines.write_text("".join(" ".join(map(str, tokens)) + "\n" for tokens in sequences))
        result = subprocess.run(
            [self.path, command, str(folder), dtype, str(lines), *map(str, args)], capture_output=True, text=True
        )
        require(result.returncode == 0, f"{command} on {folder}: {result.stderr}")
        return result.stdout

    def logits(self, folder, dtype, sequences, vocab):
        """For each sequence the logits behind every token, [tokens, vocab]."""
        out = self.scratch / "logits.f32"
        self.run("logits", folder, dtype, sequences, out)
        flat = torch.from_numpy(numpy.fromfile(out, dtype=numpy.float32)).reshape(-1, vocab)
        require(len(flat) == sum(map(len, sequences)), "the probe wrote another number of rows")
        return list(flat.split([len(tokens) for tokens in sequences]))

    def generate(self, folder, dtype, prompts, max_new_tokens, temperature):
        """For each prompt (tokens, log-probabilities, entropies)."""
        responses = []
        for line in self.run("generate", folder, dtype, prompts, max_new_tokens, temperature).splitlines():
            words = line.split()
            responses.append(
                ([int(w) for w in words[::3]], [float(w) for w in words[1::3]], [float(w) for w in words[2::3]])
            )
        return responses


def rounded_attention(module, query, key, value, *args, attention=modeling_llama.eager_attention_forward, **kwargs):
    """Eager attention over keys and values that were stored as fp16."""
    return attention(module, query, key.half().to(key.dtype), value.half().to(value.dtype), *args, **kwargs)


def reference_logits(model, sequences, dtype, round_kv):
    """What transformers computes for each sequence in `dtype`, as fp64 [tokens, vocab]."""
    model = model.to(dtype)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if dtype == torch.float64:
            stack.enter_context(patched(modeling_llama, "torch", Fp64Torch()))
        if round_kv:
            stack.enter_context(patched(modeling_llama, "eager_attention_forward", rounded_attention))
        return [model(torch.tensor([tokens]), use_cache=False).logits[0].double() for tokens in sequences]


def errors(found, truth):
    difference = torch.cat(found).double() - torch.cat(truth)
    return difference.square().mean().sqrt().item(), difference.abs().max().item()


def check_logits(probe, name, model, folder, sequences, dtype="fp32"):
    """Compares logits; returns the truth, and the largest error that ours may have."""
    ours = probe.logits(folder, dtype, sequences, model.config.vocab_size)
    theirs = reference_logits(model, sequences, torch.float32, dtype == "fp16")
    truth = reference_logits(model, sequences, torch.float64, dtype == "fp16")
    (our_rms, our_max), (their_rms, their_max) = errors(ours, truth), errors(theirs, truth)
    spread = torch.cat(truth).std().item()
    print(
        f"{name}: logits of spread {spread:.2g}; error rms {our_rms:.2g} and max {our_max:.2g}, "
        f"transformers in fp32 {their_rms:.2g} and {their_max:.2g}"
    )
    require(our_rms <= FACTOR * their_rms, f"{name}: the error of the logits is too large (rms)")
    require(our_max <= FACTOR * their_max, f"{name}: the error of the logits is too large (max)")
    return truth, FACTOR * their_max


def random_sequences(vocab, lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, vocab, (length,), generator=generator).tolist() for length in lengths]


TINY = {
    "multi-head, untied": dict(num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False),
    "2 queries per KV head, tied": dict(num_attention_heads=8, num_key_value_heads=4, tie_word_embeddings=True),
    "4 queries per KV head": dict(num_attention_heads=8, num_key_value_heads=2, tie_word_embeddings=False),
    "wide heads, odd sizes": dict(
        num_attention_heads=3, num_key_value_heads=1, head_dim=34, hidden_size=51, intermediate_size=77,
        vocab_size=301, tie_word_embeddings=True, rope_theta=5e4, rms_norm_eps=1e-3,
    ),
    "eight KV heads, one layer": dict(
        num_attention_heads=16, num_key_value_heads=8, head_dim=6, num_hidden_layers=1, tie_word_embeddings=False
    ),
}


def tiny_model(seed, **changes):
    torch.manual_seed(seed)
    settings = dict(
        vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=3, max_position_embeddings=256,
        initializer_range=0.2, attn_implementation="eager",
    )
    model = LlamaForCausalLM(LlamaConfig(**(settings | changes))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return model


def round_weights(model):
    """The same model with its weights rounded to fp16; the frequencies of the rotary embedding stay as they are."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    return model


def check_tiny_models(probe):
    for seed, (name, changes) in enumerate(TINY.items()):
        folder = probe.scratch / f"tiny{seed}"
        model = tiny_model(seed, **changes)
        model.save_pretrained(folder)
        sequences = random_sequences(model.config.vocab_size, [1, 2, 64, 65, 200], seed)
        check_logits(probe, f"{name}, fp32", model, folder, sequences)
        check_logits(probe, f"{name}, fp16", round_weights(model), folder, sequences, "fp16")


def check_scores(name, truth, prompts, responses, temperature, bound):
    """Recorded log-probabilities and entropies against the truth's, for logits that may be off by `bound`.

    With x = logits / T, log-softmax changes by at most 2 max|dx|, and entropy by at most max|dx| * sum p |log p + H|
    to first order; twice that covers the rest and our own few roundings.
    """
    shift = bound / (temperature or 1.0)
    for logits, prompt, (tokens, logprobs, entropies) in zip(truth, prompts, responses):
        rows = logits[len(prompt) - 1 : len(prompt) - 1 + len(tokens)] / (temperature or 1.0)
        expected = rows.log_softmax(-1)
        chosen = expected.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        off = (torch.tensor(logprobs, dtype=torch.float64) - chosen).abs().max().item()
        require(off <= 2 * shift, f"{name}: log-probabilities are off by {off:.2g}")
        entropy = -(expected.exp() * expected).sum(-1)
        slope = (expected.exp() * (expected + entropy[:, None]).abs()).sum(-1)
        excess = (torch.tensor(entropies, dtype=torch.float64) - entropy).abs() - 2 * shift * slope - 1e-6
        require(excess.max().item() <= 0, f"{name}: entropies are off by {excess.max().item():.2g} too much")


def check_greedy(truth, prompts, responses, bound):
    """Every token is transformers' choice, but for ties within what both errors may turn around."""
    ties = 0
    for logits, prompt, (tokens, _, _) in zip(truth, prompts, responses):
        rows = logits[len(prompt) - 1 : len(prompt) - 1 + len(tokens)]
        best, second = rows.topk(2, -1).values.unbind(-1)
        clear = best - second > 2 * bound
        wrong = (rows.argmax(-1) != torch.tensor(tokens)) & clear
        require(not wrong.any(), f"greedy: token {wrong.nonzero().flatten().tolist()} is not the most likely one")
        ties += int((~clear).sum())
    total = sum(len(tokens) for tokens, _, _ in responses)
    print(f"greedy: {total} tokens, {ties} of them within {2 * bound:.2g} of the next")
    require(ties <= total // 20, "greedy: too many ties to tell anything")


def load_real(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def check_real_model(probe, folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)["input_ids"]
        for text in PROMPTS
    ]
    greedy = probe.generate(folder, "fp32", prompts, 40, 0.0)
    sampled = probe.generate(folder, "fp32", prompts, 40, 0.7)
    continued = [prompt + tokens for prompt, (tokens, _, _) in zip(prompts * 2, greedy + sampled)]
    truth, bound = check_logits(probe, "SmolLM2, fp32", load_real(folder), folder, continued)
    check_greedy(truth[: len(prompts)], prompts, greedy, bound)
    check_scores("greedy", truth[: len(prompts)], prompts, greedy, 0.0, bound)
    check_scores("sampled", truth[len(prompts) :], prompts, sampled, 0.7, bound)
    rounded = round_weights(load_real(folder))
    check_logits(probe, "SmolLM2, fp16 weights and KV", rounded, folder, continued[::3], "fp16")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine_probe", required=True)
    parser.add_argument("--model", type=Path, required=True)
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as name:
        probe = Probe(arguments.engine_probe, Path(name))
        check_tiny_models(probe)
        check_real_model(probe, arguments.model)
    print("engine_oracle_test: all agree")


if __name__ == "__main__":
    main()
