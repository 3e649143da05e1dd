"""Writes a Llama-architecture model folder with Qwen3-0.6B's dimensions and random bf16 weights.

    make_random_model.py --tokenizer FOLDER --out FOLDER

The tokenizer's files are copied from another model's folder: no measurement reads text with them. The folder is written
aside and renamed, so it is whole or absent. The same numpy gives the same bytes.
"""

import argparse
import json
import os
import shutil
from pathlib import Path

import numpy as np

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 8192,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
}
STANDARD_DEVIATION = 0.02


def shapes():
    hidden, mlp = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    q = CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    kv = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]
    yield "model.embed_tokens.weight", (CONFIG["vocab_size"], hidden)
    for layer in range(CONFIG["num_hidden_layers"]):
        block = f"model.layers.{layer}."
        yield block + "input_layernorm.weight", (hidden,)
        yield block + "self_attn.q_proj.weight", (q, hidden)
        yield block + "self_attn.k_proj.weight", (kv, hidden)
        yield block + "self_attn.v_proj.weight", (kv, hidden)
        yield block + "self_attn.o_proj.weight", (hidden, q)
        yield block + "post_attention_layernorm.weight", (hidden,)
        yield block + "mlp.gate_proj.weight", (mlp, hidden)
        yield block + "mlp.up_proj.weight", (mlp, hidden)
        yield block + "mlp.down_proj.weight", (hidden, mlp)
    yield "model.norm.weight", (hidden,)


def bf16_bits(values):
    """Round to nearest even; the values are small and finite."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_weights(file):
    header, offset = {}, 0
    for name, shape in shapes():
        end = offset + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(1)
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for _, shape in shapes():
            norm = len(shape) == 1
            values = np.ones(shape, np.float32) if norm else random.standard_normal(shape, np.float32) * np.float32(STANDARD_DEVIATION)
            out.write(bf16_bits(values).tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    aside = args.out.with_name(args.out.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    (aside / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(args.tokenizer / name, aside / name)
    write_weights(aside / "model.safetensors")
    os.rename(aside, args.out)


if __name__ == "__main__":
    main()
