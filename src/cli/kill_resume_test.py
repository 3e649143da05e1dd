"""A run that is killed anywhere and resumed is the run that was never killed, bit for bit."""

import random
import shutil
import time

import tiny_run
from tiny_run import TinyRunTest, files_below, outcome, probe

# With 6 steps, a checkpoint every 2 and 8 responses a step: late enough for an earlier checkpoint to exist.
LATE_COUNT = {"rollout_response": 36, "checkpoint_begin": 2, "checkpoint_model_written": 2,
              "checkpoint_state_written": 2, "checkpoint_before_rename": 2, "checkpoint_after_rename": 2,
              "checkpoint_done": 2, "checkpoint_before_prune": 3}
LATE_STEP = 4


class BrokenRunTest(TinyRunTest):
    """Has a run that was never killed, to compare with."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.unbroken = cls.scratch / "unbroken"
        result = cls.train(cls.unbroken)
        if result.returncode != 0:
            raise AssertionError(result.stderr)
        cls.expected = outcome(cls.unbroken)

    def broken_run(self, name, fault):
        run_dir = self.scratch / name
        self.assert_killed(self.train(run_dir, fault=fault), fault)
        return run_dir

    def assert_resumes(self, run_dir, what):
        """Resumes to the end; returns what it printed."""
        result = self.train(run_dir)
        self.assert_ok(result)
        self.assertNotIn("than before", result.stderr, what)  # settings and data are those of the killed run
        self.assert_same_outcome(run_dir, self.expected, what)
        self.assertEqual(sorted(p.name for p in (run_dir / "checkpoints").iterdir()),
                         sorted(p.name for p in (self.unbroken / "checkpoints").iterdir()), what)
        return result.stdout


class FaultPointTest(BrokenRunTest):
    def test_the_run_is_worth_comparing(self):
        self.assertEqual(len(self.expected["metrics"]), 7)  # and the evaluation before training
        self.assertEqual(len(self.expected["rollouts"]), 6)
        first = files_below(self.unbroken / "checkpoints" / "global_step_4")
        self.assertNotEqual(first["model.safetensors"], self.expected["model"]["model.safetensors"])

    def test_every_fault_point_at_its_first_passing(self):
        for point in probe("fault-points").split():
            with self.subTest(point=point):
                run_dir = self.broken_run(f"first_{point}", f"{point}:1")
                self.assert_resumes(run_dir, point)

    def test_every_fault_point_late_in_the_run(self):
        for point in probe("fault-points").split():
            fault = f"{point}:{LATE_COUNT.get(point, LATE_STEP)}"
            with self.subTest(fault=fault):
                run_dir = self.broken_run(f"late_{point}", fault)
                self.assertIn("resuming after step ", self.assert_resumes(run_dir, fault))

    def test_every_fault_point_with_a_second_kill_in_the_resumed_run(self):
        for point in probe("fault-points").split():
            with self.subTest(point=point):
                run_dir = self.broken_run(f"twice_{point}", f"{point}:1")
                self.assert_killed(self.train(run_dir, fault=f"{point}:1"), point)
                self.assert_resumes(run_dir, point)

    def test_unknown_fault_point_names_the_nearest(self):
        result = self.train(self.scratch / "unknown", fault="step_beginn:1")
        self.assertEqual(result.returncode, 2)
        self.assertIn("'step_begin'", result.stderr)

    def test_finished_run_does_nothing_more(self):
        before = files_below(self.unbroken)
        self.assert_ok(self.train(self.unbroken))
        self.assertEqual(files_below(self.unbroken), before)


class DamagedCheckpointTest(BrokenRunTest):
    """Folders that are not whole checkpoints."""

    def test_temporary_folder_is_not_a_checkpoint(self):
        run_dir = self.broken_run("temporary", "checkpoint_before_rename:2")
        self.assertTrue((run_dir / "checkpoints" / ".tmp-global_step_4").is_dir())
        self.assertIn("resuming after step 2 ", self.assert_resumes(run_dir, "temporary folder"))

    def test_folder_without_the_pointer_is_not_a_checkpoint(self):
        run_dir = self.broken_run("unpointed", "step_begin:4")
        checkpoints = run_dir / "checkpoints"
        for cut in ("global_step_3", "global_step_9"):
            shutil.copytree(checkpoints / "global_step_2", checkpoints / cut)
            state = checkpoints / cut / "trainer" / "state.safetensors"
            state.write_bytes(state.read_bytes()[:100])
            (checkpoints / cut / "model.safetensors").unlink()
        self.assertIn("resuming after step 2 ", self.assert_resumes(run_dir, "folder without pointer"))

    def test_half_removed_old_checkpoint_is_cleared_away(self):
        run_dir = self.broken_run("half_removed", "checkpoint_before_prune:3")
        (run_dir / "checkpoints" / "global_step_2" / "model.safetensors").unlink()
        self.train(run_dir)
        self.assert_same_outcome(run_dir, self.expected, "half-removed checkpoint")

    def test_damaged_newest_checkpoint_is_refused(self):
        for name, damage in (("cut", lambda path: path.write_bytes(path.read_bytes()[:1000])),
                             ("empty", lambda path: path.write_bytes(b"")),
                             ("missing", lambda path: path.unlink())):
            with self.subTest(damage=name):
                run_dir = self.broken_run(f"damaged_{name}", "step_begin:4")
                damage(run_dir / "checkpoints" / "global_step_2" / "trainer" / "state.safetensors")
                result = self.train(run_dir)
                self.assertIn(result.returncode, (1, 2))
                self.assertIn("resuming from", result.stderr)
                self.assertIn("state.safetensors", result.stderr)

    def test_older_checkpoint_goes_on_where_the_newest_is_damaged(self):
        run_dir = self.broken_run("flipped", "step_begin:6")
        state = run_dir / "checkpoints" / "global_step_4" / "trainer" / "state.safetensors"
        flipped = bytearray(state.read_bytes())
        flipped[len(flipped) // 2] ^= 1  # in the lowest bits of a finite number
        state.write_bytes(flipped)
        result = self.train(run_dir)
        self.assertEqual(result.returncode, 1)
        pointer = run_dir / "checkpoints" / "latest"
        self.assertIn(f"write its name, global_step_2, into {pointer}", result.stderr)
        pointer.write_text("global_step_2\n")
        self.assertIn("resuming after step 2 ", self.assert_resumes(run_dir, "older checkpoint"))

    def test_pointer_to_nothing_is_refused(self):
        run_dir = self.broken_run("pointer", "step_begin:4")
        (run_dir / "checkpoints" / "latest").write_text("global_step_99\n")
        result = self.train(run_dir)
        self.assertEqual(result.returncode, 1)
        self.assertIn("latest names no folder", result.stderr)

    def test_missing_pointer_loses_no_checkpoints(self):
        run_dir = self.broken_run("no_pointer", "step_begin:6")
        (run_dir / "checkpoints" / "latest").unlink()
        before = files_below(run_dir)
        result = self.train(run_dir)
        self.assertEqual(result.returncode, 1)
        self.assertIn("write the newest whole checkpoint's name into it, e.g. global_step_4", result.stderr)
        self.assertEqual(files_below(run_dir), before)
        (run_dir / "checkpoints" / "latest").write_text("global_step_4\n")
        self.assert_resumes(run_dir, "pointer written by hand")

    def test_log_lines_beyond_the_checkpoint_are_done_again(self):
        run_dir = self.broken_run("garbage", "step_begin:4")
        with open(run_dir / "metrics.jsonl", "a") as log:
            log.write('{"step":3,"made_up":1}\n{"step":4,"cut')
        (run_dir / "rollouts" / "step_5.jsonl").write_text("made up\n")
        (run_dir / "rollouts" / "step_3.jsonl.tmp").write_text("made up\n")
        self.assert_resumes(run_dir, "made-up lines")


class RandomMomentTest(TinyRunTest):
    """Kills at moments that no fault point names, in a run with longer steps."""

    LONG = ["data.max_response_length=96", "rollout.n=8", "data.train_batch_size=4", "trainer.total_steps=8",
            "trainer.max_ckpt_to_keep=1"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        unbroken = cls.scratch / "unbroken"
        begin = time.monotonic()
        result = cls.train(unbroken, *cls.LONG)
        cls.seconds = time.monotonic() - begin
        if result.returncode != 0:
            raise AssertionError(result.stderr)
        cls.expected = outcome(unbroken)

    def kill_after(self, run_dir, seconds):
        """Whether the child was still running."""
        child = self.start(run_dir, *self.LONG)
        time.sleep(seconds)
        alive = child.poll() is None
        self.end(child)
        return alive

    def test_random_moments(self):
        moments = random.Random(1)
        killed = 0
        for number in range(6):
            run_dir = self.scratch / f"random_{number}"
            killed += self.kill_after(run_dir, moments.uniform(0.05, 0.9) * self.seconds)
            self.assert_ok(self.train(run_dir, *self.LONG))
            self.assert_same_outcome(run_dir, self.expected, f"moment {number}")
        self.assertGreater(killed, 0)

    def test_killed_over_and_over(self):
        moments = random.Random(2)
        run_dir = self.scratch / "over_and_over"
        for _ in range(8):
            self.kill_after(run_dir, moments.uniform(0.1, 0.6) * self.seconds)
        self.assert_ok(self.train(run_dir, *self.LONG))
        self.assert_same_outcome(run_dir, self.expected, "over and over")


if __name__ == "__main__":
    tiny_run.main()
