"""Model folders against PyPI safetensors and transformers: both directions, bit for bit."""

import argparse
import json
import logging
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
HUGE_SHARD = 10**12


def require(condition, message):
    if not condition:
        sys.exit(f"hf_oracle_test: {message}")


def run(probe, *args):
    return subprocess.run([probe, *map(str, args)], capture_output=True, text=True)


def read_with_probe(probe, folder, scratch):
    """name -> (dtype name, fp32 tensor), as rondo reads the folder."""
    out = scratch / "read"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    result = run(probe, "read", folder, out)
    require(result.returncode == 0, f"reading {folder}: {result.stderr}")
    tensors = {}
    for index, line in enumerate(result.stdout.splitlines()):
        name, dtype, shape = line.split("\t")
        sizes = [int(n) for n in shape.split(",") if n]
        data = bytearray((out / f"{index}.f32").read_bytes())
        flat = torch.frombuffer(data, dtype=torch.float32) if data else torch.empty(0)
        tensors[name] = (dtype, flat.reshape(sizes))
    return tensors


def same_bits(a, b):
    """Equal including the sign of zero and the payload of NaN."""
    view = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(view), b.contiguous().view(view))


def all_patterns(dtype):
    """Every finite value of a 16-bit type, or a broad sample of fp32, with both zeros and subnormals."""
    if dtype == torch.float32:
        bits = torch.randint(-(2**31), 2**31 - 1, (50000,), generator=torch.Generator().manual_seed(1)).to(torch.int32)
        values = torch.cat([bits, torch.tensor([0, -(2**31), 1], dtype=torch.int32)]).view(torch.float32)
    else:
        values = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    return values[torch.isfinite(values)]


def check_reads_every_dtype(probe, scratch):
    folder = scratch / "dtypes"
    folder.mkdir()
    tensors = {f"all.{name}": all_patterns(dtype) for name, dtype in DTYPES.items()}
    tensors |= {"scalar": torch.tensor(-0.0), "empty": torch.empty(0, 3), "names/ü \"x\"": torch.ones(2, 3, 4)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt", "note": "ü"})
    found = read_with_probe(probe, folder, scratch)
    require(found.keys() == tensors.keys(), f"names differ: {sorted(found)} and {sorted(tensors)}")
    for name, tensor in tensors.items():
        dtype, values = found[name]
        require(DTYPES[dtype] == tensor.dtype, f"{name}: read as {dtype}, stored as {tensor.dtype}")
        require(same_bits(values, tensor.float()), f"{name}: values differ")


def tiny_model(dtype, tied, seed):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=320, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=tied, rope_theta=5e4,
    )
    return LlamaForCausalLM(config).to(dtype)


def check_reads_model(probe, model, folder, scratch):
    found = read_with_probe(probe, folder, scratch)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and model.config.tie_word_embeddings:
            require(name not in found, "a tied head was stored twice")
            continue
        require(name in found, f"{name} was not read from {folder}")
        require(same_bits(found[name][1], tensor.float()), f"{name} differs in {folder}")


class Warnings(logging.Handler):
    """Collects what transformers warns about while it loads."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())


def load_quietly(folder):
    """The model as transformers loads it; any warning and any key that does not fit is an error."""
    handler = Warnings()
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model, info = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    finally:
        logger.removeHandler(handler)
    leftovers = {key: value for key, value in info.items() if value}
    require(not leftovers, f"transformers loads {folder} with {leftovers}")
    require(not handler.messages, f"transformers warns about {folder}: {handler.messages}")
    return model


def check_written(probe, model, folder, stored, max_shard_bytes, scratch):
    """rondo's copy of `folder` as `stored` loads in transformers with the tensors of `model`, rounded once."""
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    result = run(probe, "copy", folder, out, stored, max_shard_bytes)
    require(result.returncode == 0, f"copying {folder} as {stored}: {result.stderr}")
    copy = out / (out / "latest").read_text().strip()
    shards = sorted(path.name for path in copy.glob("*.safetensors"))
    require((len(shards) > 1) == (max_shard_bytes < HUGE_SHARD), f"{copy} has the files {shards}")
    loaded = load_quietly(copy)
    require(loaded.dtype == DTYPES[stored], f"{copy} loads as {loaded.dtype}, not {stored}")
    expected, found = model.state_dict(), loaded.state_dict()
    require(expected.keys() == found.keys(), f"{copy}: keys differ")
    for name, tensor in expected.items():
        require(same_bits(found[name], tensor.to(DTYPES[stored])), f"{copy}: {name} differs")
    for shard in shards:
        for name, tensor in load_file(copy / shard).items():
            require(same_bits(tensor, expected[name].to(DTYPES[stored])), f"{copy}/{shard}: {name} differs")
    return copy


def check_tiny_models(probe, scratch):
    seed = 0
    for dtype in DTYPES.values():
        for tied in (False, True):
            for shard_size in ("50GB", "40KB"):
                seed += 1
                model = tiny_model(dtype, tied, seed)
                folder = scratch / f"tiny{seed}"
                model.save_pretrained(folder, max_shard_size=shard_size)
                sharded = (folder / "model.safetensors.index.json").exists()
                require(sharded == (shard_size == "40KB"), f"{folder} is not sharded as asked")
                check_reads_model(probe, model, folder, scratch)
                for i, stored in enumerate(DTYPES):
                    max_bytes = (HUGE_SHARD, 50000)[(seed + i) % 2]
                    check_written(probe, model, folder, stored, max_bytes, scratch)


def check_overflow_names_the_tensor(probe, scratch):
    model = tiny_model(torch.float32, True, 99)
    name = "model.layers.1.mlp.up_proj.weight"
    with torch.no_grad():
        model.get_parameter(name)[1, 2] = 65520.0
    folder = scratch / "overflow"
    model.save_pretrained(folder)
    result = run(probe, "copy", folder, scratch / "out_overflow", "fp16", HUGE_SHARD)
    require(result.returncode == 1 and f"tensor '{name}'" in result.stderr, f"overflow: {result.stderr!r}")
    require(not any((scratch / "out_overflow").iterdir()), "a failed publish left something behind")


def check_real_model(probe, folder, scratch):
    if not (folder / "config.json").is_file():
        print(f"skipped the real model: there is none in {folder}")
        return
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    check_reads_model(probe, model, folder, scratch)
    copy = check_written(probe, model, folder, "fp16", 100_000_000, scratch)
    text = "12345 héllo <|im_end|>\n"
    require(
        AutoTokenizer.from_pretrained(copy)(text) == AutoTokenizer.from_pretrained(folder)(text),
        "the copied tokenizer is not the original",
    )
    require(
        json.loads((copy / "generation_config.json").read_text())
        == json.loads((folder / "generation_config.json").read_text()),
        "generation_config.json was not copied",
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hf_probe", required=True)
    parser.add_argument("--model", type=Path, required=True)
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        check_reads_every_dtype(arguments.hf_probe, scratch)
        check_tiny_models(arguments.hf_probe, scratch)
        check_overflow_names_the_tensor(arguments.hf_probe, scratch)
        check_real_model(arguments.hf_probe, arguments.model, scratch)
    print("hf_oracle_test: all equal")


if __name__ == "__main__":
    main()
