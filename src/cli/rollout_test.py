"""Schedules from the command line: `rondo bench rollout`, `rondo profile`, and training under other schedules."""

import json
import math
import os
import re
import signal
import struct
import subprocess
import time
from pathlib import Path

import tiny_run
from tiny_run import BINARIES, TIMEOUT_S, TinyRunTest, outcome, rondo

LONG = ["data.max_response_length=100", "engine.kv_memory=48KiB", "rollout.chunk_tokens=20", "trainer.total_steps=2"]


class RolloutTest(TinyRunTest):
    def setUp(self):
        self.cache = self.scratch / f"cache_{self._testMethodName}"
        self.environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache)}

    def run_rondo(self, *args):
        return rondo(*args, env=self.environment)

    def test_bench_compares_policies_on_the_same_tokens(self):
        policies = ["group_round_robin", "seer", "seer_plus+spec", "oracle_lfs", "stream_oracle", "partial"]
        result = self.run_rondo("bench", "rollout", *self.arguments(self.scratch / "bench", *LONG, "rollout.instances=2"),
                                "--policies", ",".join(policies), "--repeats", 2)
        self.assert_ok(result)
        rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        self.assertEqual([row["variant"] for row in rows], 2 * policies)
        self.assertEqual(len({row["tokens"] for row in rows if row["variant"] != "partial"}), 1)
        self.assertEqual([row["preempted"] for row in rows if row["variant"].startswith("seer")], [0] * 4)
        self.assertGreaterEqual(rows[5]["responses"], rows[0]["responses"] // 2)
        self.assertEqual([row["strictly_synchronous"] for row in rows], 2 * (5 * [True] + [False]))
        self.assertIn("partial (not strictly synchronous)", result.stdout)
        for policy in policies:
            self.assertRegex(result.stdout, rf"(?m)^{policy.replace('+', '.')} ")

    def bench(self, name, *args, overrides=()):
        arguments = self.arguments(self.scratch / name, *LONG, "rollout.instances=2", *overrides)
        return self.run_rondo("bench", "rollout", *arguments, "--repeats", 1, *args)

    def test_ablation_draws_each_step_and_all_together(self):
        folder = self.scratch / "traces"
        result = self.bench("ablation", "--ablation", "--trace", folder)
        self.assert_ok(result)
        names = ["group_round_robin", "fifo", "seer", "seer_plus", "seer_plus+spec"]
        rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        self.assertEqual([row["variant"] for row in rows], names)
        for label, name in zip(("base", "+ divided", "+ context", "+ learned lengths", "+ speculation"), names):
            self.assertIn(f"\n{label} ({name}) ", result.stdout)
        files = {path.name for path in folder.iterdir()}
        self.assertEqual(files, {f"{name}.{kind}" for name in names for kind in ("html", "json", "inputs")}
                         | {"comparison.html"})
        for name, row in zip(names, rows):
            trace = json.loads((folder / f"{name}.json").read_text())
            chunks = [event for event in trace if event["ph"] == "X"]
            self.assertEqual(len(chunks), row["chunks"])
            self.assertEqual(sum(event["args"]["finished"] for event in chunks), row["responses"])
            self.assertEqual(sum(event["ph"] == "s" for event in trace), row["migrations"])
            inputs = (folder / f"{name}.inputs").read_text().splitlines()
            self.assertEqual(sum(line.split()[1] == "assign" for line in inputs), row["chunks"])
        comparison = (folder / "comparison.html").read_text()
        for name in names:
            self.assertIn(f"({name})", comparison)

    def test_lengths_are_replayed(self):
        lengths = {(prompt, sample): 3 + 11 * prompt + 20 * sample for prompt in range(2) for sample in range(4)}
        path = self.scratch / "lengths.jsonl"
        path.write_text("".join(json.dumps({"prompt_id": p, "sample": s, "length": n}) + "\n"
                                for (p, s), n in lengths.items()))
        result = self.bench("lengths", "--lengths", path, "--policies", "oracle_lfs,seer")
        self.assert_ok(result)
        rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        self.assertEqual([row["tokens"] for row in rows], 2 * [sum(lengths.values())])
        for overrides, message in ((["data.train_batch_size=3"], "has 2 prompts"),
                                   (["rollout.n=5"], "has 4 samples of each prompt"),
                                   (["data.max_response_length=73"], "set it to 74")):
            with self.subTest(overrides=overrides):
                result = self.bench("lengths", "--lengths", path, overrides=overrides)
                self.assertEqual(result.returncode, 2, result.stdout)
                self.assertIn(message, result.stderr)

    def test_lengths_behind_the_replayed_ones_teach_the_prior(self):
        path = self.scratch / "many_lengths.jsonl"
        path.write_text("".join(json.dumps({"prompt_id": p, "sample": s, "length": 2 + 5 * p + 3 * s}) + "\n"
                                for p in range(8) for s in range(4)))
        folder = self.scratch / "replay"
        self.assert_ok(self.bench("prior", "--lengths", path, "--policies", "seer_plus", "--trace", folder))
        inputs = [line.split() for line in (folder / "seer_plus.inputs").read_text().splitlines()]
        priors = [line for line in inputs if line[1] == "prior"]
        self.assertEqual(len(priors), 1)
        # The log has the bits of a double.
        median, _, _, weight = struct.unpack("<4d", b"".join(int(x).to_bytes(8, "little") for x in priors[0][2:6]))
        self.assertEqual(weight, 6)
        behind = [2 + 5 * p + 3 * s for p in range(2, 8) for s in range(4)]
        # The longest counts as cut off at its limit.
        self.assertAlmostEqual(median, sum(math.log(n) for n in behind) / len(behind), delta=0.02)

    def test_oracle_alone_says_what_it_needs(self):
        result = self.bench("oracle", "--policies", "oracle_lfs")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--policies seer_plus,oracle_lfs", result.stderr)
        self.assertIn("--lengths", result.stderr)

    def test_profile_is_kept_and_read(self):
        args = self.arguments(self.scratch / "profile", "rollout.spec.enabled=true")
        result = self.run_rondo("profile", *args)
        self.assert_ok(result)
        self.assertIn("drafts", result.stdout)
        kept = list((self.cache / "rondo").glob("step_cost_*.json"))
        self.assertEqual(len(kept), 1)
        trained = self.run_rondo("train", *args)
        self.assert_ok(trained)
        self.assertNotIn("measuring the time of decoding steps", trained.stderr)

    def test_profile_that_is_interrupted_keeps_the_old_one(self):
        args = self.arguments(self.scratch / "interrupted")
        self.assert_ok(self.run_rondo("profile", *args))
        (kept,) = (self.cache / "rondo").glob("step_cost_*.json")
        before = kept.read_bytes()
        self.assert_interrupted("profile", *args, "engine.kv_memory=256MiB", "data.max_prompt_length=400")
        self.assertEqual(kept.read_bytes(), before)
        self.assertEqual(list(kept.parent.iterdir()), [kept], "nothing half-written")

    def test_measuring_in_train_heeds_an_interruption(self):
        run_dir = self.scratch / "measuring"
        text = self.assert_interrupted("train", *self.arguments(run_dir), "rollout.spec.enabled=true",
                                       "engine.kv_memory=256MiB", "data.max_prompt_length=400")
        self.assertIn("interrupted", text)
        self.assertFalse((run_dir / "checkpoints" / "latest").exists())

    def test_bench_heeds_an_interruption(self):
        for what in (["rollout"], ["decode"], ["step"]):
            with self.subTest(what=what):
                self.assert_interrupted("bench", *what, *self.arguments(self.scratch / "bench_cut"), "--repeats", 100000)

    def assert_interrupted(self, *args):
        """Starts the command, interrupts it once its handlers stand, and returns what it said."""
        child = subprocess.Popen([BINARIES["rondo"], *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, env=self.environment)
        caught = f"/proc/{child.pid}/status"
        deadline = time.monotonic() + TIMEOUT_S
        while not self.catches_sigint(caught) and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.002)
        child.send_signal(signal.SIGINT)
        text, _ = child.communicate(timeout=TIMEOUT_S)
        self.assertEqual(child.returncode, 130, text)
        self.assertIn("stopping after the work at hand", text)
        return text

    @staticmethod
    def catches_sigint(status):
        try:
            with open(status) as file:
                mask = next(line for line in file if line.startswith("SigCgt:"))
        except (OSError, StopIteration):
            return False
        return int(mask.split()[1], 16) >> (signal.SIGINT - 1) & 1 == 1

    def test_bench_spec_pairs_plain_and_speculating_runs(self):
        result = self.run_rondo("bench", "spec", *self.arguments(self.scratch / "spec", *LONG, "engine.kv_memory=1MiB"),
                                "--batch", "1,6", "--new-tokens", 40, "--repeats", 2)
        self.assert_ok(result)
        rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
        self.assertEqual([row["batch"] for row in rows], [1, 6])
        for row in rows:
            self.assertGreater(row["time_ratio"], 0)
            self.assertGreaterEqual(row["accept_len"], 1)
        refused = self.run_rondo("bench", "spec", *self.arguments(self.scratch / "spec"), "--batch", 100000)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("engine.batch.max_running", refused.stderr)

    def test_several_responses_are_told_apart(self):
        args = self.arguments(self.scratch / "generate", "rollout.n=2")
        result = self.run_rondo("generate", *args, "--raw", "--prompt", "ab", "--prompt", "cd")
        self.assert_ok(result)
        headings = [line for line in result.stdout.splitlines() if line.startswith("--- prompt ")]
        self.assertEqual(headings, [f"--- prompt {p}, response {r}" for p in (1, 2) for r in (1, 2)])
        single = self.run_rondo("generate", *args, "rollout.n=1", "--raw", "--prompt", "ab")
        self.assert_ok(single)
        self.assertNotIn("--- prompt", single.stdout)

    def test_every_metric_is_documented(self):
        text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
        documented = {name: re.compile(re.escape(name).replace("SOURCE", "[^/]+").replace("NAME", "[^/]+")
                                       .replace("@N", r"@\d+"))
                      for line in text.splitlines() if line.startswith("| `") for name in re.findall("`([^`]+)`", line.split("|")[1])}
        run_dir = self.scratch / "metrics"
        self.assert_ok(self.run_rondo("train", *self.arguments(run_dir, *LONG, "rollout.instances=2", "actor.kl_loss_coef=0.1",
                                                              "rollout.spec.enabled=true", "rollout.spec.hysteresis=0")))
        rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        names = {re.sub("/(max|min)$", "/mean", name) for row in rows for name in row} - {"step", "measured"}
        for name in sorted(names):
            with self.subTest(metric=name):
                self.assertTrue(any(pattern.fullmatch(name) for pattern in documented.values()))
        for name, pattern in documented.items():
            with self.subTest(documented=name):
                self.assertTrue(name.startswith("reward_extra/") or any(pattern.fullmatch(known) for known in names))
        self.assertGreaterEqual(rows[1]["spec/accept_len"], 1)
        self.assertGreater(rows[1]["rollout/chunks"], 8)

    def test_schedules_change_no_bit_of_a_run(self):
        plain = self.scratch / "plain"
        self.assert_ok(self.train(plain, *LONG))
        for name, overrides in (("two", ["rollout.instances=2", "rollout.policy=least_attained"]),
                                ("disk", ["rollout.host_kv_memory=0", "rollout.disk_kv_memory=1MiB",
                                          "rollout.move_threshold=0"]),
                                ("spec", ["rollout.spec.enabled=true", "rollout.spec.hysteresis=0"])):
            with self.subTest(schedule=name):
                run_dir = self.scratch / name
                result = self.run_rondo("train", *self.arguments(run_dir, *LONG, *overrides))
                self.assert_ok(result)
                self.assert_same_outcome(run_dir, outcome(plain), name)

    def test_errors_name_the_setting(self):
        for overrides, message in ((["rollout.policy=seeer"], 'did you mean "seer"'),
                                   (["rollout.policy=oracle_lfs"], "`rondo bench rollout`"),
                                   (["rollout.policy=partial"], "`rondo bench rollout`"),
                                   (["rollout.instances=0"], "rollout.instances"),
                                   (["rollout.chunk_tokens=-1"], "rollout.chunk_tokens")):
            with self.subTest(overrides=overrides):
                result = self.train(self.scratch / "wrong", *overrides)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn(message, result.stderr)
        for command in (["generate", "--raw", "--prompt", "a"], ["eval"]):
            for policy in ("oracle_lfs", "stream_oracle", "partial"):
                result = self.run_rondo(*command[:1], *self.arguments(self.scratch / "wrong"),
                                        f"rollout.policy={policy}", *command[1:])
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertIn("`rondo bench rollout`", result.stderr)
        for bad in ("0", "-3", "x", "1.5"):
            result = self.run_rondo("bench", "rollout", f"--repeats={bad}")
            self.assertEqual(result.returncode, 2)
            self.assertIn(f"{bad} is no whole number from 1 to 2147483647", result.stderr)
            self.assertLess(len(result.stderr), 300)
        occupied = self.scratch / "occupied"
        occupied.write_text("")
        result = self.run_rondo("bench", "rollout", *self.arguments(self.scratch / "wrong"), "--trace", str(occupied))
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(f"--trace: cannot create the folder {occupied}", result.stderr)
        arguments = self.arguments(self.scratch / "wrong", "rollout.n=0")
        result = self.run_rondo("bench", "rollout", "--policies", "seer", *arguments)
        self.assertIn("rollout.n", result.stderr)  # what follows --policies is not one more policy
        result = self.run_rondo("bench", "rollout", *self.arguments(self.scratch / "wrong"), "--policies", "seeer")
        self.assertEqual(result.returncode, 2)
        self.assertIn("the nearest is 'seer'", result.stderr)


if __name__ == "__main__":
    tiny_run.main()
