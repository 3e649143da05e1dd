"""Ctrl-C, SIGTERM, a closed terminal and a reader that went away: the last completed step is saved, and the run goes on from it."""

import os
import signal
import subprocess
import time

import tiny_run
from tiny_run import BINARIES, TIMEOUT_S, TinyRunTest, outcome

INTERRUPTED = 130
# Long enough to be interrupted in the middle; no checkpoint but at the end.
LONG = ["trainer.total_steps=40", "trainer.save_freq=0", "trainer.test_freq=0", "data.max_response_length=64"]


class InterruptTest(TinyRunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        unbroken = cls.scratch / "unbroken"
        if cls.train(unbroken, *LONG).returncode != 0:
            raise AssertionError("the unbroken run failed")
        cls.expected = outcome(unbroken)

    def read_until(self, stream, start):
        """Reads lines until one begins with `start`."""
        for line in stream:
            if line.startswith(start):
                return
        self.fail(f"no line begins with {start!r}")

    def wait(self, child):
        stdout, stderr = child.communicate(timeout=TIMEOUT_S)
        return stdout + stderr

    def assert_saved_and_resumable(self, run_dir, text=""):
        step = int((run_dir / "checkpoints" / "latest").read_text().strip().removeprefix("global_step_"))
        if text:
            self.assertIn(f"step {step} is saved: run the same command again", text)
        result = self.train(run_dir, *LONG)
        self.assert_ok(result)
        self.assertIn(f"resuming after step {step} ", result.stdout)
        self.assert_same_outcome(run_dir, self.expected, f"resumed after step {step}")

    def test_first_signal_saves_the_last_completed_step(self):
        for number, name in ((signal.SIGINT, "int"), (signal.SIGTERM, "term"), (signal.SIGHUP, "hup")):
            with self.subTest(signal=name):
                run_dir = self.scratch / name
                child = self.start(run_dir, *LONG)
                self.read_until(child.stdout, "step:3/")
                child.send_signal(number)
                text = self.wait(child)
                self.assertEqual(child.returncode, INTERRUPTED, text)
                self.assertIn("once more to stop at once", text)
                self.assert_saved_and_resumable(run_dir, text)

    def test_nohup_outlives_its_terminal(self):
        run_dir = self.scratch / "nohup"
        child = self.start(run_dir, *LONG, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.read_until(child.stdout, "step:3/")
        child.send_signal(signal.SIGHUP)
        text = self.wait(child)
        self.assertEqual(child.returncode, 0, text)
        self.assert_same_outcome(run_dir, self.expected, "under nohup")

    def test_signal_before_the_first_step_saves_nothing(self):
        run_dir = self.scratch / "early"
        child = self.start(run_dir, *LONG, "rollout.n=2000", "data.max_response_length=400", "engine.kv_memory=64MiB")
        self.read_until(child.stdout, "held-out score before")
        child.send_signal(signal.SIGINT)
        text = self.wait(child)
        self.assertEqual(child.returncode, INTERRUPTED, text)
        self.assertIn("nothing to save", text)
        self.assertFalse((run_dir / "checkpoints" / "latest").exists())

    def test_second_signal_ends_at_once(self):
        # Once a step has changed the weights it is brought to its end: here through a long evaluation.
        run_dir = self.scratch / "twice"
        child = self.start(run_dir, *LONG, "rollout.val.n=5000", "rollout.val.temperature=1", "trainer.test_freq=1",
                           "data.max_response_length=400", "engine.kv_memory=64MiB", "trainer.val_before_train=false")
        self.read_until(child.stdout, "gradient norm")
        child.send_signal(signal.SIGINT)
        self.read_until(child.stderr, "stopping after the work at hand")
        time.sleep(0.1)
        self.assertIsNone(child.poll(), "the first signal waits for the end of the step")
        child.send_signal(signal.SIGINT)
        text = self.wait(child)
        self.assertEqual(child.returncode, INTERRUPTED, text)
        self.assertNotIn("step:1/", text)
        self.assertFalse((run_dir / "checkpoints" / "latest").exists())

    def test_reader_that_goes_away(self):
        run_dir = self.scratch / "pipe"
        child = self.start(run_dir, *LONG)
        self.read_until(child.stdout, "step:3/")
        child.stdout.close()
        child.stdout = None
        text = child.stderr.read()
        self.assertEqual(child.wait(timeout=TIMEOUT_S), INTERRUPTED, text)
        self.assertIn("nobody reads the output any more", text)
        self.assert_saved_and_resumable(run_dir)

    def test_output_that_is_closed_from_the_start_still_ends(self):
        reader, writer = os.pipe()
        os.close(reader)
        child = subprocess.run([BINARIES["rondo"], "config"], stdout=writer, stderr=subprocess.PIPE, timeout=TIMEOUT_S)
        os.close(writer)
        self.assertNotEqual(child.returncode, 0)


if __name__ == "__main__":
    tiny_run.main()
