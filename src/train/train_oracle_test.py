"""Gradients, loss, advantages and AdamW against torch autograd on transformers' models, TRL's code and torch.optim.

Tolerance of gradients. The truth is autograd through transformers' own code run in fp64 (rotary tables stay fp32, as in
every precision). Its fp32 run is off by some error, and so are we, in another order of summation. Both errors are random
walks of roundings along the same depth, so for each tensor ours must stay within FACTOR of theirs (of the median tensor's
where theirs is luckier). One sum is not of like depth: the gradient that enters below the head is a single ascending
chain over the vocabulary here, and their blocked sum rounds far less (at 49152 tokens: 6e-5 of the result against 7e-7),
so their fp32 run gets that chain too. A wrong term or factor is off by many orders of magnitude more. With fp16 storage, weights are
rounded on both sides, and keys and values with a straight-through gradient; a key near a tie may fall either way in each
of the runs, those flips dominate both errors, and the same comparison holds.
"""

import argparse
import collections
import contextlib
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama
from transformers.utils import logging
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import entropy_from_logits, nanstd, selective_log_softmax

sys.path.insert(0, str(Path(__file__).parents[1] / "testing"))
from fp64_reference import Fp64Torch, patched  # noqa: E402

FACTOR = 3.0
OLD_OFFSETS = [0.0, 0.1, -0.5, 0.05, 0.6, -0.1]  # some beyond either clip, none near its edge
REF_OFFSETS = [0.3, 0.0, -0.4, 0.1]
ADVANTAGES = [1.25, -0.75, 0.5, -1.5]
Settings = collections.namedtuple("Settings", "temperature low high kl entropy mode")
DAPO = Settings(1.0, 0.2, 0.28, 0.0, 0.0, "dapo")  # token mean
FULL = Settings(0.7, 0.2, 0.28, 0.05, 0.01, "dapo")
GRPO = Settings(1.0, 0.2, 0.2, 0.04, 0.0, "grpo")  # mean over sequences of the mean over tokens


def require(condition, message):
    if not condition:
        sys.exit(f"train_oracle_test: {message}")


def run(probe, *args):
    result = subprocess.run([probe, *map(str, args)], capture_output=True, text=True)
    require(result.returncode == 0, f"{' '.join(map(str, args[:3]))}: {result.stderr}")
    return result.stdout


def straight_through(x):
    """x rounded to fp16; the gradient does not see it."""
    return x + (x.half().to(x.dtype) - x).detach()


def rounded_attention(module, query, key, value, *args, attention=modeling_llama.eager_attention_forward, **kwargs):
    """Eager attention over keys and values that were stored as fp16."""
    return attention(module, query, straight_through(key), straight_through(value), *args, **kwargs)


class ChainHead(torch.autograd.Function):
    """The output projection, its input gradient summed over the vocabulary in one ascending fp32 chain."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        g, w = grad.flatten(0, -2).double().T.numpy(), weight.double().numpy()
        total = numpy.zeros((g.shape[1], w.shape[1]), numpy.float32)
        for dlogit, row in zip(g, w):
            total = (total + dlogit[:, None] * row).astype(numpy.float32)
        dweight = grad.flatten(0, -2).T @ x.flatten(0, -2)
        return torch.from_numpy(total).reshape(x.shape), dweight


def forward_mode(dtype, storage):
    stack = contextlib.ExitStack()
    if dtype == torch.float64:
        stack.enter_context(patched(modeling_llama, "torch", Fp64Torch()))
    if storage == "fp16":
        stack.enter_context(patched(modeling_llama, "eager_attention_forward", rounded_attention))
    return stack


Unit = collections.namedtuple("Unit", "prompt responses old ref")


def scores(model, unit, temperature):
    """For each response the log-probabilities and entropies of its tokens, by TRL's functions."""
    out = []
    for response in unit.responses:
        ids = torch.tensor([unit.prompt + response])
        logits = model(ids, use_cache=False).logits[0, len(unit.prompt) - 1 : -1] / temperature
        out.append((selective_log_softmax(logits, torch.tensor(response)), entropy_from_logits(logits)))
    return out


def make_unit(model, prompt, lengths, temperature, storage, seed):
    """A unit of random tokens, its old and reference log-probabilities around the model's."""
    generator = torch.Generator().manual_seed(seed)
    tokens = lambda n: torch.randint(0, model.config.vocab_size, (n,), generator=generator).tolist()
    unit = Unit(tokens(prompt), [tokens(n) for n in lengths], [], [])
    model.to(torch.float32)
    with torch.no_grad(), forward_mode(torch.float32, storage):
        for s, (logprobs, _) in enumerate(scores(model, unit, temperature)):
            offset = lambda offsets: torch.tensor([offsets[(i + s) % len(offsets)] for i in range(len(logprobs))])
            unit.old.append(logprobs + offset(OLD_OFFSETS))
            unit.ref.append(logprobs + offset(REF_OFFSETS))
    return unit


def trl_loss(found, unit, settings, dtype):
    """TRL's GRPOTrainer._compute_loss on given log-probabilities and entropies: an object with the fields it reads."""
    lengths = [len(r) for r in unit.responses]
    pad = lambda rows: torch.nn.utils.rnn.pad_sequence([r.to(dtype) for r in rows], batch_first=True)
    mask = pad([torch.ones(n) for n in lengths])
    ids = torch.zeros(mask.shape, dtype=torch.long)
    logprobs, entropies = pad([f[0] for f in found]), pad([f[1] for f in found])
    trainer = types.SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (logprobs, entropies, None),
        aux_loss_enabled=False, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        importance_sampling_level="token", beta=settings.kl, loss_type=settings.mode, epsilon_low=settings.low,
        epsilon_high=settings.high, use_vllm=False, vllm_importance_sampling_correction=False,
        current_gradient_accumulation_steps=1, _entropy_bonus_enabled=settings.entropy != 0,
        use_adaptive_entropy=False, entropy_coef=settings.entropy,
        args=types.SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        model=types.SimpleNamespace(training=False),
        accelerator=types.SimpleNamespace(
            num_processes=1, gather=lambda x: x, reduce=lambda x, reduction: x, sync_gradients=True
        ),
        _metrics=collections.defaultdict(lambda: collections.defaultdict(list)),
    )
    inputs = {
        "prompt_ids": ids[:, :0], "prompt_mask": ids[:, :0], "completion_ids": ids, "completion_mask": mask,
        "advantages": torch.tensor(ADVANTAGES[: len(lengths)], dtype=dtype), "old_per_token_logps": pad(unit.old),
        "ref_per_token_logps": pad(unit.ref), "num_items_in_batch": mask.sum(),
    }
    clip_share = lambda: trainer._metrics["eval"]["clip_ratio/region_mean"][0]
    return GRPOTrainer._compute_loss(trainer, None, inputs), clip_share


def torch_gradient(model, unit, settings, dtype, storage):
    """Loss and gradients by name of the mini-batch that is this unit alone."""
    model.to(dtype).zero_grad(set_to_none=True)
    head = model.lm_head
    chained = lambda x: ChainHead.apply(x, head.weight)
    with forward_mode(dtype, storage), patched(head, "forward", head.forward if dtype == torch.float64 else chained):
        loss, clip_share = trl_loss(scores(model, unit, settings.temperature), unit, settings, dtype)
        loss.backward()
    require(0 < clip_share() < 1, "the unit should have clipped and unclipped tokens")
    return loss.item(), {name: p.grad.double().flatten() for name, p in model.named_parameters()}


def our_gradient(probe, folder, unit, settings, storage, scratch):
    lengths = [len(r) for r in unit.responses]
    token_mean = settings.mode == "dapo"
    tensors = {
        "settings": [settings.temperature, settings.low, settings.high, settings.kl, settings.entropy],
        "prompt": unit.prompt,
        "advantages": ADVANTAGES[: len(lengths)],
        "weights": [1.0 if token_mean else 1.0 / n for n in lengths],
    }
    for i, response in enumerate(unit.responses):
        tensors |= {f"tokens.{i}": response, f"old.{i}": unit.old[i], f"ref.{i}": unit.ref[i]}
    tensors = {k: torch.as_tensor(v, dtype=torch.float32).contiguous() for k, v in tensors.items()}
    save_file(tensors, scratch / "unit.safetensors")
    run(probe, "gradient", folder, storage, scratch / "unit.safetensors", scratch / "gradient.safetensors")
    found = {name: t.double() for name, t in load_file(scratch / "gradient.safetensors").items()}
    found.pop("logprobs")
    normaliser = sum(lengths) if token_mean else len(lengths)
    return found.pop("loss").item() / normaliser, {name: g / normaliser for name, g in found.items()}


def check_gradient(probe, name, model, folder, unit, settings, scratch, storage="fp32"):
    our_loss, ours = our_gradient(probe, folder, unit, settings, storage, scratch)
    their_loss, theirs = torch_gradient(model, unit, settings, torch.float32, storage)
    true_loss, truth = torch_gradient(model, unit, settings, torch.float64, storage)
    require(ours.keys() == truth.keys(), f"{name}: tensors differ: {sorted(ours.keys() ^ truth.keys())}")
    error = lambda found, tensor: ((found[tensor] - truth[tensor]).norm() / truth[tensor].norm()).item()
    our_errors = {tensor: error(ours, tensor) for tensor in truth}
    their_errors = {tensor: error(theirs, tensor) for tensor in truth}
    median = numpy.median(list(their_errors.values()))
    excess = {t: our_errors[t] / max(their_errors[t], median) for t in truth}
    worst = max(excess, key=excess.get)
    print(
        f"{name}: loss {true_loss:.6g}; relative error of gradients: median {numpy.median(list(our_errors.values())):.2g}, "
        f"transformers in fp32 {median:.2g}; worst ratio {excess[worst]:.2g} ({worst})"
    )
    require(median < (1e-3 if storage == "fp32" else 0.1), f"{name}: transformers' own fp32 gradients are off by {median}")
    require(excess[worst] <= FACTOR, f"{name}: the gradient of {worst} is off by {our_errors[worst]:.2g}")
    # The loss is a mean of terms of about 1: errors of log-probabilities, and a rounding of each.
    slack = FACTOR * abs(their_loss - true_loss) + 4e-6 * (1 + abs(true_loss))
    require(abs(our_loss - true_loss) <= slack * (1 if storage == "fp32" else 100), f"{name}: the loss is {our_loss}, not {true_loss}")


def tiny_model(seed, **changes):
    torch.manual_seed(seed)
    settings = dict(
        vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=256, initializer_range=0.2, attn_implementation="eager",
    )
    model = LlamaForCausalLM(LlamaConfig(**(settings | changes))).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.uniform_(0.5, 1.5)
    return model


def check_tiny_models(probe, scratch):
    for seed, (name, tied) in enumerate({"untied": False, "tied": True}.items()):
        folder = scratch / name
        model = tiny_model(seed, tie_word_embeddings=tied)
        model.save_pretrained(folder)
        for loss, settings in {"dapo": DAPO, "dapo with KL and entropy": FULL, "grpo": GRPO}.items():
            unit = make_unit(model, 61, [9, 40, 1, 30], settings.temperature, "fp32", seed)
            check_gradient(probe, f"tiny {name}, {loss}", model, folder, unit, settings, scratch)
        with torch.no_grad():
            for parameter in model.to(torch.float32).parameters():
                parameter.copy_(parameter.half())
        unit = make_unit(model, 61, [9, 40, 1, 30], FULL.temperature, "fp16", seed)
        check_gradient(probe, f"tiny {name}, fp16 storage", model, folder, unit, FULL, scratch, "fp16")


def check_real_model(probe, folder, scratch):
    if not (folder / "config.json").exists():
        print(f"skipped: no model at {folder} (scripts/setup.sh makes it)")
        return
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    unit = make_unit(model, 12, [8, 5], FULL.temperature, "fp32", 3)
    check_gradient(probe, "SmolLM2", model, folder, unit, FULL, scratch)


def check_advantages(probe):
    """TRL's normalisation, with its own standard deviation: (r - mean) / (std + epsilon) in each group."""
    generator = torch.Generator().manual_seed(5)
    groups = [torch.randint(0, 2, (n,), generator=generator).double() for n in (2, 3, 8, 16)]
    groups += [torch.randn(n, generator=generator).double() * 10 for n in (2, 5, 64)]
    for rewards in groups:
        for by_std in (True, False):
            words = [repr(r) for r in rewards.tolist()]
            found = torch.tensor([float(x) for x in run(probe, "advantages", 1e-4, int(by_std), *words).split()])
            expected = rewards - rewards.mean()
            if by_std:
                expected = expected / (nanstd(rewards) + 1e-4)
            # One rounding to fp32, and half of one in TRL's n / (n - 1), which is fp32.
            worst = (found.double() - expected).abs() - 2**-23 * expected.abs() - 1e-12
            require(worst.max() <= 0, f"advantages of {rewards.tolist()} are {found.tolist()}, not {expected.tolist()}")


def check_adamw(probe, scratch):
    """Updates against torch.optim.AdamW in fp64, clipped by torch's clip_grad_norm_, with the same fp32 constants."""
    model = tiny_model(9, tie_word_embeddings=True)
    model.save_pretrained(scratch / "adamw")
    updates, normaliser = 6, 5.0
    lr, beta1, beta2, eps, decay, clip = numpy.float32([1e-3, 0.9, 0.999, 1e-8, 0.1, 1.0]).tolist()
    generator = torch.Generator().manual_seed(2)
    tensors = {"settings": torch.tensor([lr, beta1, beta2, eps, decay, clip, normaliser, updates])}
    gradients = []
    for t in range(updates):
        scale = 0.001 if t == 3 else 0.1  # one update is not clipped
        # Multiples of 2^-30 are exact in the fixed-point sum.
        draw = lambda p: (torch.randn(p.shape, generator=generator) * scale * 2**20).round() / 2**20
        gradients.append({name: draw(p) for name, p in model.named_parameters()})
        tensors |= {f"{t}.{name}": g for name, g in gradients[t].items()}
    save_file(tensors, scratch / "adamw.in")
    run(probe, "adamw", scratch / "adamw", scratch / "adamw.in", scratch / "adamw.out")
    found = load_file(scratch / "adamw.out")
    model.to(torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=decay)
    norms = []
    for gradient in gradients:
        for name, p in model.named_parameters():
            p.grad = gradient[name].double() / normaliser
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), clip).item())
        optimizer.step()
    require(min(norms) < clip < max(norms), "the updates should be clipped and not")
    worst_norm = max(abs(a / b - 1) for a, b in zip(found["norms"].tolist(), norms))
    require(worst_norm < 2**-22, f"gradient norms are off by {worst_norm:.2g}")
    # Per update a rounding of the master, and a step of at most a few lr that about ten roundings and torch's 1e-6 in
    # the clip's divisor change.
    worst = 0.0
    for name, p in model.named_parameters():
        bound = updates * (2**-24 * 2 * p.abs() + 3 * lr * (16 * 2**-24 + 1e-6))
        worst = max(worst, ((found[name].double() - p.flatten()).abs() / bound.flatten()).max().item())
    print(f"AdamW: {updates} updates, norms {min(norms):.2g} to {max(norms):.2g}; error {worst:.2g} of its bound")
    require(worst <= 1, "masters differ from torch.optim.AdamW's")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--train_probe", required=True)
    parser.add_argument("--model", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(2)
    logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        check_advantages(args.train_probe)
        check_adamw(args.train_probe, scratch)
        check_tiny_models(args.train_probe, scratch)
        check_real_model(args.train_probe, args.model, scratch)


if __name__ == "__main__":
    main()
