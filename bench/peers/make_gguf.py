"""Writes a Llama model folder as a GGUF file without a tokenizer, for llama.cpp to measure on the same weights.

    make_gguf.py --model FOLDER --dtype fp16|bf16 --out FILE

The file is written aside and renamed, so it is whole or absent. Reads one-file models stored in bf16. Run it with the
oracle environment's Python.
"""

import argparse
import json
import os
from pathlib import Path

import gguf
import numpy as np

TYPES = {"fp16": gguf.GGMLQuantizationType.F16, "bf16": gguf.GGMLQuantizationType.BF16}
FILE_TYPES = {"fp16": gguf.LlamaFileType.MOSTLY_F16, "bf16": gguf.LlamaFileType.MOSTLY_BF16}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return NAMES[stem] + ".weight"
    layer, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{NAMES[part]}.weight"


def read_tensors(file):
    """Yields (name, fp32 array) of a safetensors file that holds bf16, in the file's order."""
    data = np.memmap(file, dtype=np.uint8, mode="r")
    size = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + size].tobytes())
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            raise SystemExit(f"{file}: {name} is stored as {entry['dtype']}; this converter reads BF16")
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        bits = data[begin:end].view(np.uint16).astype(np.uint32) << 16
        yield name, bits.view(np.float32).reshape(entry["shape"])


def interleave(weight, heads):
    """Rows of a q or k projection in the order of GGUF's rotary embedding, which pairs neighbours."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_metadata(writer, config, dtype):
    writer.add_file_type(FILE_TYPES[dtype])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")


def write_gguf(folder, dtype, out):
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(out, "llama")
    write_metadata(writer, config, dtype)
    for name, weight in read_tensors(folder / "model.safetensors"):
        if name.endswith("q_proj.weight"):
            weight = interleave(weight, config["num_attention_heads"])
        if name.endswith("k_proj.weight"):
            weight = interleave(weight, config["num_key_value_heads"])
        kind = TYPES[dtype] if weight.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--dtype", choices=TYPES, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    aside = args.out.with_suffix(".part")
    write_gguf(args.model, args.dtype, aside)
    os.replace(aside, args.out)


if __name__ == "__main__":
    main()
