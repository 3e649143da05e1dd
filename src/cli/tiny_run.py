"""Runs of `rondo` on a tiny random model, as child processes: what this folder's end-to-end tests share.

A test file ends with `tiny_run.main()`, which takes the binaries' paths from the command line.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TIMEOUT_S = 120
BINARIES = {}

# A random model writes a digit now and then: the format score gives groups their variance.
OVERRIDES = [
    "data.train_batch_size=2", "rollout.n=4", "data.max_prompt_length=32", "data.max_response_length=12",
    "reward.function=last_number", "reward.format_score=0.25", "engine.kv_memory=1MiB", "actor.optim.lr=1e-3",
    "trainer.total_steps=6", "trainer.save_freq=2", "trainer.test_freq=2", "trainer.threads=1",
]


def main():
    parser = argparse.ArgumentParser()
    for name in ("rondo", "cli_probe"):
        parser.add_argument(f"--{name}", required=True)
    options, rest = parser.parse_known_args()
    BINARIES.update(vars(options))
    unittest.main(argv=[sys.argv[0], *rest])


def probe(*args):
    return subprocess.run([BINARIES["cli_probe"], *map(str, args)], check=True, capture_output=True, text=True,
                          timeout=TIMEOUT_S).stdout


def rondo(*args, **options):
    """One finished command with its output as text."""
    return subprocess.run([BINARIES["rondo"], *map(str, args)], capture_output=True, text=True,
                          timeout=TIMEOUT_S, **options)


def files_below(folder):
    """Relative path -> bytes of every file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def outcome(run_dir):
    """All that two runs of the same configuration must agree on, bit for bit."""
    newest = (run_dir / "checkpoints" / "latest").read_text().strip()
    return {
        "metrics": probe("deterministic", run_dir / "metrics.jsonl").splitlines(),
        "rollouts": files_below(run_dir / "rollouts"),
        "newest": newest,
        "model": files_below(run_dir / "checkpoints" / newest),
    }


class TinyRunTest(unittest.TestCase):
    """Gives each test class one scratch folder with a model and data, and each test its own run folders."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = Path(tempfile.mkdtemp(prefix="rondo_e2e_"))
        cls.addClassCleanup(shutil.rmtree, cls.scratch, ignore_errors=True)
        cls.model = cls.scratch / "model"
        probe("model", cls.model, 1)
        cls.train_file = cls.write_rows("train.jsonl", [f"say {i}" for i in range(6)])
        cls.val_file = cls.write_rows("val.jsonl", ["say 7", "say 8"])

    @classmethod
    def write_rows(cls, name, prompts):
        path = cls.scratch / name
        rows = [{"prompt": prompt, "data_source": "tiny", "label": str(i)} for i, prompt in enumerate(prompts)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    @classmethod
    def arguments(cls, run_dir, *overrides):
        return [f"model.path={cls.model}", f"data.train_files={cls.train_file}", f"data.val_files={cls.val_file}",
                *OVERRIDES, f"trainer.run_dir={run_dir}", *overrides]

    @classmethod
    def train(cls, run_dir, *overrides, fault=None, **options):
        """A finished training command."""
        return rondo("train", *cls.arguments(run_dir, *overrides), *(["--fault", fault] if fault else []), **options)

    def start(self, run_dir, *overrides, **options):
        """A training command that is under way; ended with the test if it still runs then."""
        child = subprocess.Popen([BINARIES["rondo"], "train", *map(str, self.arguments(run_dir, *overrides))],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.addCleanup(self.end, child)
        return child

    @staticmethod
    def end(child):
        if child.poll() is None:
            child.kill()
        child.communicate(timeout=TIMEOUT_S)

    def assert_ok(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def assert_killed(self, result, what):
        self.assertEqual(result.returncode, -signal.SIGKILL, f"{what}: {result.stdout}{result.stderr}")

    def assert_same_outcome(self, run_dir, expected, what=""):
        actual = outcome(run_dir)
        for part in expected:
            self.assertEqual(actual[part], expected[part], f"{what}: {part} differs")
