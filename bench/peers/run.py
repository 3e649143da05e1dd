"""Measures rondo beside its peers on this machine; run.sh sets everything up and calls it.

Peer and rondo are measured in turn (peer, rondo, peer, rondo, …), so that a change of the machine's speed meets both, and
compared pair by pair. While one measures, the other is stopped.
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import random
import subprocess
from pathlib import Path

from process import Driver, PeerFailed, Rondo
from report import Results

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DRIVERS = {"llama_cpp": "llama_cpp_driver.py", "vllm": "vllm_driver.py", "transformers": "transformers_driver.py"}
INFERENCE_PEERS = [
    "llama_cpp:fp16",
    "llama_cpp:bf16",
    "vllm:fp32",
    "vllm:bf16",
    "transformers:fp32",
    "transformers:bf16",
]
TRAIN_PEERS = ["trl:fp32"]
CORPUS_ENDINGS = (".py", ".md", ".rst", ".txt", ".h", ".json")
CORPUS_FILE_CHARACTERS = 4000
MAX_PROMPTS = 64
MAX_PROMPT_TOKENS = 2048
ENGINE = [
    "engine.kv_memory=2GiB",
    "engine.batch.max_running=64",
]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=["decode", "prefill", "train", "tokenize", "growth", "all"])
    parser.add_argument("--quick", action="store_true", help="one round of small cases: does everything run?")
    parser.add_argument("--no-random-model", action="store_true", help="decode, prefill: on the given model only")
    parser.add_argument("--no-given-model", action="store_true", help="decode, prefill: on the random model only")
    parser.add_argument("--batches", default="1,4,8,16,32,64", help="decode: comma-separated batch sizes (%(default)s); with --quick 1,8")
    parser.add_argument("--rounds", type=int, help="pairs of each case (3; with --quick 1)")
    parser.add_argument("--peers", help="comma-separated, e.g. llama_cpp:fp16,trl:fp32 (all)")
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--rondo", type=Path, required=True)
    parser.add_argument("--text-probe", type=Path, required=True)
    parser.add_argument("--python", action="append", default=[], metavar="PEER=PATH", help="interpreter of a peer")
    parser.add_argument("--unavailable", action="append", default=[], metavar="PEER=REASON")
    parser.add_argument("--out", type=Path, required=True, help="folder of tables, JSON files and logs")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    args = parser.parse_args()
    if args.no_given_model and (args.no_random_model or args.quick):
        parser.error("--no-given-model leaves the random model, which --no-random-model and --quick leave out")
    args.rounds = args.rounds or (1 if args.quick else 3)
    return args


def processor_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def commit():
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


class Session:
    """One call of this program: what it measures with, and where its results go."""

    def __init__(self, args):
        self.args = args
        self.out = args.out
        self.out.mkdir(parents=True, exist_ok=True)
        self.rondo = Rondo(str(args.rondo), str(args.text_probe), args.threads)
        self.pythons = dict(pair.split("=", 1) for pair in args.python)
        self.unavailable = dict(pair.split("=", 1) for pair in args.unavailable)
        self.about = {
            "date": datetime.datetime.now().astimezone().isoformat(timespec="minutes"),
            "processor": f"{processor_name()}, {args.threads} threads",
            "commit": commit(),
            "quick": args.quick,
            "limits": self.rondo.bench("limits"),
        }

    def peers(self, known):
        chosen = self.args.peers.split(",") if self.args.peers else known
        return [peer for peer in known if peer in chosen]

    def drive(self, results, peer, script, model, environment=None):
        """A started driver, or None with the reason in the results."""
        name, _, dtype = peer.partition(":")
        if name in self.unavailable:
            results.not_available[peer] = self.unavailable[name]
            return None
        command = [self.pythons[name], str(HERE / script), "--model", str(model), "--threads", str(self.args.threads)]
        if dtype:
            command += ["--dtype", dtype]
        try:
            driver = Driver(command, self.out / f"{peer.replace(':', '_')}.log", environment)
        except PeerFailed as error:
            results.not_available[peer] = str(error)
            return None
        results.versions[peer] = driver.version
        return driver

    def finish(self, section, results):
        results.write(self.out / f"{section}.json")
        (self.out / f"{section}.md").write_text(results.table())
        print(f"\n## {section}\n\n{results.table()}", flush=True)


def say(case, peer, answer, rondo):
    ratio = rondo["tokens_per_s"] / answer["tokens_per_s"]
    print(
        f"{case}: {peer} {answer['tokens_per_s']:.1f}, rondo {rondo['tokens_per_s']:.1f} tokens/s, ratio {ratio:.2f}",
        flush=True,
    )


# --- decode and prefill


def write_prompts(file, vocab):
    """Random prompts, the same for all."""
    generator = random.Random(1)
    with open(file, "w", encoding="utf-8") as out:
        for _ in range(MAX_PROMPTS):
            out.write(json.dumps({"tokens": [generator.randrange(vocab) for _ in range(MAX_PROMPT_TOKENS)]}) + "\n")


def model_file(session, peer, model):
    """What the peer loads: the folder, or for llama.cpp a GGUF file of the same weights, made where it is missing."""
    name, _, dtype = peer.partition(":")
    if name != "llama_cpp":
        return model
    file = session.out / f"{model.name}-{dtype}.gguf"
    if not file.exists():
        command = [session.pythons["transformers"], str(HERE / "make_gguf.py"), "--model", str(model)]
        subprocess.run([*command, "--dtype", dtype, "--out", str(file)], check=True)
    return file


def inference_cases(section, quick, all_batches):
    if section == "decode":
        batches = [1, 8] if quick else [int(batch) for batch in all_batches.split(",")]
        new_tokens = 16 if quick else 128
        return [{"what": "decode", "batch": b, "prompt_tokens": 64, "new_tokens": new_tokens} for b in batches]
    return [{"what": "prefill", "batch": 1, "prompt_tokens": n} for n in ([128] if quick else [512, 2048])]


def case_name(model, case):
    if case["what"] == "decode":
        return f"{model.name}, decode, batch {case['batch']}"
    return f"{model.name}, prefill, {case['prompt_tokens']} tokens"


def rondo_inference(session, model, case, prompts=None):
    """One measurement after one warm-up."""
    flags = ["--batch", case["batch"], "--prompt-tokens", case["prompt_tokens"], "--repeats", 1]
    if case["what"] == "decode":
        flags += ["--new-tokens", case["new_tokens"]]
    if prompts:
        flags += ["--prompts", prompts]
    (answer,) = session.rondo.bench(case["what"], f"model.path={model}", *ENGINE, *case.get("settings", []), *flags)
    return answer | {"tokens_per_s": answer["tokens_per_second"]}


def measure_inference(session, results, section, model):
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    prompts = session.out / f"prompts-{vocab}.jsonl"
    write_prompts(prompts, vocab)
    cases = inference_cases(section, session.args.quick, session.args.batches)
    for peer in session.peers(INFERENCE_PEERS):
        script = DRIVERS[peer.partition(":")[0]]
        driver = session.drive(results, peer, script, model_file(session, peer, model))
        if driver is None:
            continue
        try:
            for case in cases:  # warm-up, also of what a peer compiles for a shape
                driver.ask(case | {"prompts": str(prompts), "new_tokens": 4})
            for _ in range(session.args.rounds):
                for case in cases:
                    answer = driver.ask(case | {"prompts": str(prompts)})
                    rondo = rondo_inference(session, model, case, prompts)
                    results.add_pair(case_name(model, case), peer, answer, rondo)
                    say(case_name(model, case), peer, answer, rondo)
        except PeerFailed as error:
            results.not_available[peer] = str(error)
        finally:
            driver.close()
            results.write(session.out / f"{section}.json")  # what a later failure must not lose


def random_model(session):
    """A model of Qwen3-0.6B's dimensions with random weights, made where it is missing."""
    folder = session.out / "random-0.6B"
    if not folder.exists():
        command = [session.pythons["transformers"], str(HERE / "make_random_model.py")]
        subprocess.run([*command, "--tokenizer", str(session.args.model), "--out", str(folder)], check=True)
    return folder


def run_inference(session, section):
    results = Results(session.about)
    models = [] if session.args.no_given_model else [session.args.model]
    if not session.args.quick and not session.args.no_random_model:
        models.append(random_model(session))
    for model in models:
        measure_inference(session, results, section, model)
    session.finish(section, results)


# --- training: rondo first, then TRL with the same prompts and lengths


def train_cases(quick):
    """(name, config file, longest response, prompts, samples)"""
    if quick:
        return [("at most 16 new tokens", "examples/step_sums.toml", 16, 2, 2)]
    return [
        ("largest of three, at most 8 new tokens", "examples/largest_of_three.toml", 8, 8, 8),
        ("step sums, at most 64 new tokens", "examples/step_sums.toml", 64, 8, 8),
        ("step sums, at most 256 new tokens", "examples/step_sums.toml", 256, 8, 8),
    ]


def rondo_step(session, config, limit, prompts, samples, seed):
    (answer,) = session.rondo.bench(
        "step",
        f"model.path={session.args.model}",
        f"data.max_response_length={limit}",
        f"data.train_batch_size={prompts}",
        f"rollout.n={samples}",
        f"trainer.seed={seed}",
        "--repeats",
        1,
        config=ROOT / config,
    )
    return answer | {"tokens_per_s": answer["tokens_per_second"]}


def run_train(session):
    results = Results(session.about)
    for peer in session.peers(TRAIN_PEERS):
        for seed in range(1, session.args.rounds + 1):
            for name, config, limit, prompts, samples in train_cases(session.args.quick):
                rondo = rondo_step(session, config, limit, prompts, samples, seed)
                replay = {"prompts": rondo.pop("prompts"), "lengths": rondo.pop("lengths")}
                driver = session.drive(results, peer, "trl_driver.py", session.args.model)
                if driver is None:
                    break
                try:
                    request = {"what": "step", "replay": replay, "max_new_tokens": limit, "micro_batch": samples}
                    answer = driver.ask(request)
                    results.add_pair(f"GRPO step, {name}", peer, answer, rondo)
                    say(f"GRPO step, {name}", peer, answer, rondo)
                except PeerFailed as error:
                    results.not_available[peer] = str(error)
                finally:
                    driver.close()
                    results.write(session.out / "train.json")  # what a later failure must not lose
    session.finish("train", results)


# --- tokenizer


def write_corpus(session, file):
    """Text of many hands: the start of every source and text file in the environment, in an order without neighbours.

    Files of one package resemble each other, which helps whoever remembers words; so each gives little.
    """
    site_packages = next((Path(session.pythons["tokenizers"]).parent.parent / "lib").glob("python3*/site-packages"))
    files = [path for ending in CORPUS_ENDINGS for path in site_packages.rglob(f"*{ending}")]
    files.sort(key=lambda path: hashlib.sha256(str(path.relative_to(site_packages)).encode()).digest())
    limit = 1_000_000 if session.args.quick else 10_000_000
    text = ""
    for path in files:
        text += path.read_text(encoding="utf-8", errors="ignore")[:CORPUS_FILE_CHARACTERS]
        if len(text) >= limit:
            break
    file.write_text(text, encoding="utf-8", newline="")


def run_tokenize(session):
    results = Results(session.about)
    corpus = session.out / "corpus.txt"
    write_corpus(session, corpus)
    tokenizer = session.args.model / "tokenizer.json"
    driver = session.drive(results, "tokenizers", "tokenizers_driver.py", tokenizer)
    if driver is not None:
        for _ in range(session.args.rounds):
            answer = driver.ask({"what": "tokenize", "corpus": str(corpus)})
            tokens, seconds = session.rondo.tokenize(str(tokenizer), str(corpus))
            if tokens != answer["tokens"]:
                raise SystemExit(f"rondo makes {tokens} tokens of {corpus}, tokenizers {answer['tokens']}")
            rondo = {"tokens_per_s": tokens / seconds, "tokens": tokens, "seconds": seconds}
            results.add_pair("tokenize, one thread", "tokenizers", answer, rondo)
            say("tokenize", "tokenizers", answer, rondo)
        driver.close()
    session.finish("tokenize", results)


# --- growth: rondo alone


def growth_cases(quick):
    contexts = [64, 256] if quick else [64, 512, 1024, 2048, 4096, 8000]
    for batch in [1, 8]:
        for context in contexts:
            case = {"what": "decode", "batch": batch, "prompt_tokens": context, "new_tokens": 16 if quick else 64}
            yield f"decode, batch {batch}, context {context}", case
    for batch in [1, 16] if quick else [1, 2, 4, 8, 16, 32, 64]:
        case = {"what": "decode", "batch": batch, "prompt_tokens": 64, "new_tokens": 16 if quick else 128}
        yield f"decode, batch {batch}", case
    for threads in range(1, len(os.sched_getaffinity(0)) + 1):
        settings = [f"trainer.threads={threads}"]
        for batch in [1, 8, 32]:
            case = {"what": "decode", "batch": batch, "prompt_tokens": 64, "new_tokens": 16 if quick else 128}
            yield f"decode, batch {batch}, threads: {threads}", case | {"settings": settings}
        case = {"what": "prefill", "batch": 1, "prompt_tokens": 128 if quick else 512, "settings": settings}
        yield f"prefill, threads: {threads}", case


def run_growth(session):
    results = Results(session.about)
    for name, case in growth_cases(session.args.quick):
        answers = [rondo_inference(session, session.args.model, case) for _ in range(session.args.rounds)]
        answers.sort(key=lambda answer: answer["tokens_per_s"])
        results.add_alone(name, answers[len(answers) // 2])
        print(f"{name}: {answers[len(answers) // 2]['tokens_per_s']:.1f} tokens/s", flush=True)
    session.finish("growth", results)


def main():
    session = Session(arguments())
    sections = {
        "decode": lambda: run_inference(session, "decode"),
        "prefill": lambda: run_inference(session, "prefill"),
        "train": lambda: run_train(session),
        "tokenize": lambda: run_tokenize(session),
        "growth": lambda: run_growth(session),
    }
    chosen = sections if session.args.section == "all" else [session.args.section]
    for section in chosen:
        sections[section]()


if __name__ == "__main__":
    main()
