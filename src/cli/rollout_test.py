"""Schedules from the command line: `rondo bench rollout`, `rondo profile`, and training under other schedules."""

import json
import os

import tiny_run
from tiny_run import TinyRunTest, outcome, rondo

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
        for policy in policies:
            self.assertRegex(result.stdout, rf"(?m)^{policy.replace('+', '.')} ")

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
        result = self.run_rondo("bench", "rollout", *self.arguments(self.scratch / "wrong"), "--policies", "seeer")
        self.assertEqual(result.returncode, 2)
        self.assertIn("the nearest is 'seer'", result.stderr)


if __name__ == "__main__":
    tiny_run.main()
