"""Compares the text module with PyPI tokenizers and transformers, string by string; the bar is zero differences.

usage: text_oracle_test.py --text_probe PATH --model FOLDER
"""

import argparse
import json
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers

SEED = 20251129
STRINGS_PER_TOKENIZER = 4000

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
# Patterns without a scanner of their own: they go through PCRE2.
MARKS = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LINES = r"[\r\n]"
SYMBOLS = r"\s?[^\s\p{L}\p{N}]+|\s*\p{L}+|\S+"

# Marks and compositions that tokenizers' NFC, whose tables are of Unicode 9, does not know.
def unknown_to_their_nfc():
    nfc = normalizers.NFC()
    unknown = set()
    for c in map(chr, range(0x300, 0x110000)):
        if unicodedata.combining(c):
            probes = ["q\u0301" + c, "q" + c + "\u0323"]
        elif unicodedata.decomposition(c):
            probes = [unicodedata.normalize("NFD", c)]
        else:
            continue
        if any(nfc.normalize_str(p) != unicodedata.normalize("NFC", p) for p in probes):
            unknown.update(probes[0][2:] if unicodedata.combining(c) else probes[0])
    return unknown


SPECIALS = ["<|begin|>", "<|end|>", "<|end|><|end|>", "<|endless|>"]


def assigned(ranges):
    points = [c for low, high in ranges for c in range(low, high + 1)]
    return [chr(c) for c in points if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]


SCRIPTS = [
    assigned([(0x20, 0x7E)]),
    assigned([(0xA0, 0x24F)]),
    assigned([(0x300, 0x36F), (0x61, 0x7A), (0x1AB0, 0x1ACE)]),
    assigned([(0x370, 0x52F)]),
    assigned([(0x590, 0x6FF)]),
    assigned([(0x900, 0xDFF)]),
    assigned([(0xE00, 0xFFF)]),
    assigned([(0x1100, 0x11FF), (0xAC00, 0xAD00)]),
    assigned([(0x1E00, 0x1FFF)]),
    assigned([(0x2000, 0x2BFF)]),
    assigned([(0x3000, 0x30FF), (0x4E00, 0x4FFF), (0xF900, 0xFAFF)]),
    assigned([(0xFB00, 0xFFFD)]),
    assigned([(0x10000, 0x11FFF)]),
    assigned([(0x1D000, 0x1D7FF), (0x1F100, 0x1F1FF)]),
    assigned([(0x1F300, 0x1FAFF), (0x200D, 0x200D), (0xFE0F, 0xFE0F)]),
]
ANYTHING = assigned([(1, 0xD7FF), (0xE000, 0x323AF), (0xE0001, 0xE01EF)])
SPACES = [
    " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1f", "\x85", "\xa0", "\u1680",
    "\u180e", "\u2003", "\u200b", "\u2028", "\u2029", "\u202f", "\u205f", "\u2060", "\u3000", "\ufeff",
]  # fmt: skip
SNIPPETS = [
    "it's", "IT'S", "don't", "we'll", "We'LL", "they've", "I'm", "you're", "'\u017f", "'S", "'ll", "'l", "l'eau",
    "3.14159", "1234567", "0x1F", "\u00bd\u2167\u0664", "e\u0301", "\u1100\u1161\u11a8", "\u0958", "\u2126",
    "for (int i = 0; i < n; ++i) {\n\t\tsum += a[i];\n}\n", "def f(x):\n    return x ** 2\n", "</div>\r\n",
    "https://example.org/?q=1&r=%20", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea",
    "<|im_start|>user\n", "<|im_end|>", "<|im_start", "<|endoftext|>", "<|begin|>", "<|end|>", "<|end|",
    "<|end|><|end|>", "<|endless|>", "word", "strip", "both", "norm\u00e9", "norme\u0301", "aword", "word_",
    "single", "\u24b6single", "single\u200d", "\x00", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]  # fmt: skip


def random_text(rng):
    kind = rng.random()
    if kind < 0.1:
        return "".join(rng.choice(ANYTHING) for _ in range(rng.randint(1, 30)))
    parts = []
    for _ in range(rng.randint(1, 25)):
        what = rng.random()
        if what < 0.35:
            script = rng.choice(SCRIPTS)
            parts.append("".join(rng.choice(script) for _ in range(rng.randint(1, 8))))
        elif what < 0.6:
            parts.append("".join(rng.choice(SPACES) for _ in range(rng.randint(1, 4))))
        elif what < 0.75:
            parts.append("".join(rng.choice("abcdefghijklmnopqrstuvwxyzE") for _ in range(rng.randint(1, 9))))
        else:
            parts.append(rng.choice(SNIPPETS))
    return "".join(parts)


def damaged(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(data) + 1)
        if data and rng.random() < 0.4:
            del data[min(at, len(data) - 1)]
        else:
            data[at:at] = rng.choice(
                [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80"]
            )
    return bytes(data)


def strings(seed, count, without=frozenset()):
    rng = random.Random(seed)
    yield b""
    for i in range(count):
        data = "".join(c for c in random_text(rng) if c not in without).encode()
        yield damaged(rng, data) if i % 5 == 4 else data


class Probe:
    def __init__(self, *args):
        self.process = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, request):
        self.process.stdin.write(request)
        self.process.stdin.flush()
        header = self.process.stdout.read(4)
        if len(header) < 4:
            sys.exit(f"the probe ended: {self.process.args}, status {self.process.wait()}")
        return self.process.stdout.read(struct.unpack("i", header)[0])

    def encode(self, data, add_special, parse_special):
        op = ord("e") | 0x100 * add_special | 0x200 * (not parse_special)
        answer = self.ask(struct.pack("ii", op, len(data)) + data)
        return list(struct.unpack(f"{len(answer) // 4}i", answer))

    def decode(self, op, ids):
        return self.ask(struct.pack("ii", ord(op), 4 * len(ids)) + struct.pack(f"{len(ids)}i", *ids)).decode()

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            sys.exit(f"the probe failed: {self.process.args}")


def expect(what, ours, theirs, context):
    if ours != theirs:
        sys.exit(f"{what} differs on {context!r}:\n  ours   {ours!r}\n  theirs {theirs!r}")


def compare(name, probe_path, tokenizer_file, count=STRINGS_PER_TOKENIZER):
    theirs = Tokenizer.from_file(str(tokenizer_file))
    probe = Probe(probe_path, "tokenizer", str(tokenizer_file))
    rng = random.Random(SEED + 1)
    without = unknown_to_their_nfc() if theirs.normalizer else frozenset()
    # Ids that no token has are skipped by both.
    largest = theirs.get_vocab_size() + 3
    for i, data in enumerate(strings(SEED, count, without)):
        text = data.decode("utf-8", errors="replace")
        for add_special in (False, True):
            expected = theirs.encode(text, add_special_tokens=add_special).ids
            expect(f"{name}: encode", probe.encode(data, add_special, True), expected, data)
        ids = expected
        if i % 2 == 0:
            ids = [rng.randrange(largest) for _ in range(rng.randint(0, 20))]
        whole = theirs.decode(ids, skip_special_tokens=False)
        expect(f"{name}: decode", probe.decode("d", ids), whole, ids)
        expect(f"{name}: incremental decode", probe.decode("i", ids), whole, ids)
        expect(f"{name}: decode, skipping", probe.decode("s", ids), theirs.decode(ids, skip_special_tokens=True), ids)
    theirs.encode_special_tokens = True
    for data in strings(SEED + 2, count // 4, without):
        text = data.decode("utf-8", errors="replace")
        expected = theirs.encode(text, add_special_tokens=False).ids
        expect(f"{name}: encode without special tokens", probe.encode(data, False, False), expected, data)
    probe.close()
    print(f"{name}: {count + count // 4} strings, no difference", flush=True)


def corpus():
    rng = random.Random(SEED + 3)
    return [random_text(rng) for _ in range(3000)] + [Path(__file__).read_text(encoding="utf-8")] * 5


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": True} | options)


def train(pre_tokenizer, nfc=False, full_alphabet=True, **model_options):
    tokenizer = Tokenizer(models.BPE(**model_options))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()) if full_alphabet else [],
        special_tokens=["<unk>"] + SPECIALS,
        limit_alphabet=256 if full_alphabet else 100,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def with_added_tokens(tokenizer):
    tokenizer.add_tokens(
        [
            AddedToken("word", single_word=True, normalized=False),
            AddedToken("single", single_word=True, lstrip=True, rstrip=True),
            AddedToken("strip", lstrip=True, normalized=False),
            AddedToken("both", lstrip=True, rstrip=True, normalized=True),
            AddedToken("norm\u00e9", normalized=True),
            AddedToken("e\u0301", rstrip=True, normalized=True),
            AddedToken("   ", normalized=False),
            AddedToken("for (", normalized=True, special=True),
        ]
    )
    return tokenizer


def with_bos(tokenizer):
    bos, eos = SPECIALS[0], SPECIALS[1]
    template = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        special_tokens=[(bos, tokenizer.token_to_id(bos)), (eos, tokenizer.token_to_id(eos))],
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def trained_tokenizers():
    sequence = pre_tokenizers.Sequence
    plain = byte_level(use_regex=False)
    yield "gpt2", train(byte_level())
    yield "gpt2 with a prefix space", with_added_tokens(train(byte_level(add_prefix_space=True)))
    yield "smollm2", with_added_tokens(train(sequence([pre_tokenizers.Digits(True), byte_level()])))
    yield "digit runs", train(sequence([pre_tokenizers.Digits(False), byte_level(add_prefix_space=True)]))
    yield "llama3", with_bos(train(sequence([split(LLAMA3), plain]), ignore_merges=True))
    yield "qwen2", with_added_tokens(train(sequence([split(QWEN2), plain]), nfc=True))
    yield "marks", with_added_tokens(train(sequence([split(MARKS), plain]), nfc=True))
    yield "lines and symbols", train(sequence([split(LINES), pre_tokenizers.Digits(True), split(SYMBOLS), plain]))
    yield "missing bytes", train(byte_level(), full_alphabet=False)
    yield "unknown bytes", train(byte_level(), full_alphabet=False, unk_token="<unk>")
    yield "fused unknown bytes", train(byte_level(), full_alphabet=False, unk_token="<unk>", fuse_unk=True)


def save(tokenizer, path, old_merges):
    data = json.loads(tokenizer.to_str())
    if old_merges:
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    path.write_text(json.dumps(data), encoding="utf-8")


def check_tokenizers(args, folder):
    compare("SmolLM2", args.text_probe, Path(args.model) / "tokenizer.json", 6000)
    for i, (name, tokenizer) in enumerate(trained_tokenizers()):
        path = Path(folder) / "tokenizer.json"
        save(tokenizer, path, old_merges=i % 2 == 1)
        compare(name, args.text_probe, path)


def conversations():
    rng = random.Random(SEED + 4)
    yield [{"role": "user", "content": "Hello"}]
    yield [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    yield [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}]
    for _ in range(300):
        yield [
            {"role": rng.choice(["system", "user", "assistant", "tool"]), "content": random_text(rng)}
            for _ in range(rng.randint(1, 6))
        ]


def render(probe, messages, add_generation_prompt):
    request = struct.pack("ii", len(messages), add_generation_prompt)
    for message in messages:
        for text in (message["role"].encode(), message["content"].encode()):
            request += struct.pack("i", len(text)) + text
    return probe.ask(request).decode()


def compare_chat(name, probe_path, kind, folder, source):
    reference = transformers.AutoTokenizer.from_pretrained(folder)
    options = {} if source is None else {"chat_template": source}
    probe = Probe(probe_path, "chat", kind, str(folder))
    for messages in conversations():
        for prompt in (False, True):
            theirs = reference.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt, **options)
            expect(f"{name}: chat template", render(probe, messages, prompt), theirs, messages)
    probe.close()
    print(f"{name}: chat template, no difference", flush=True)


CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CHATML_LINES = """\
{# the same, by hand #}
{% for message in messages %}
    {%- if loop.first and messages[0].role != "system" %}
        {{- "<|im_start|>system\\nYou're an {assistant}.<|im_end|>\\n" }}
    {%- endif %}
    {{- "<|im_start|>" + message.role + "\\n" }}
    {{- message.content }}
    {{- "<|im_end|>" + "\\n" }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- "<|im_start|>assistant\\n" }}
{%- endif %}
"""
LLAMA3_CHAT = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)
OTHER = CHATML.replace("message['content']", "message['content'] | trim")


def check_chat(args, folder):
    model = Path(args.model)
    folder = Path(folder)
    (folder / "tokenizer.json").write_bytes((model / "tokenizer.json").read_bytes())
    compare_chat("SmolLM2", args.text_probe, "model", model, None)
    compare_chat("chatml by name", args.text_probe, "chatml", folder, CHATML)
    cases = [("ChatML", CHATML, False), ("ChatML by hand", CHATML_LINES, True), ("Llama-3", LLAMA3_CHAT, False)]
    for name, source, own_file in cases:
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|endoftext|>"}
        jinja = folder / "chat_template.jinja"
        jinja.unlink(missing_ok=True)
        if own_file:
            jinja.write_text(source, encoding="utf-8")
        else:
            config["chat_template"] = source
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        compare_chat(name, args.text_probe, "model", folder, None)
    config = {"chat_template": OTHER}
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    refused = subprocess.run([args.text_probe, "chat", "model", str(folder)], capture_output=True, text=True)
    if refused.returncode == 0 or "chatml" not in refused.stderr:
        sys.exit(f"an unknown template must be refused by name of the options, got {refused}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text_probe", required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    if not (Path(args.model) / "tokenizer.json").exists():
        sys.exit(f"{args.model} has no tokenizer.json; prepare the model first (scripts/setup.sh)")
    with tempfile.TemporaryDirectory() as folder:
        check_tokenizers(args, folder)
        check_chat(args, folder)


if __name__ == "__main__":
    main()
