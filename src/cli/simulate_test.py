"""`rondo simulate` from the command line: what it prints and writes, and what it refuses."""

import json
import shutil
import tempfile
import unittest
from pathlib import Path

import tiny_run
from tiny_run import rondo

BAD_INPUT = 2
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "simulate"
SMALL = ["model.preset=smollm2-135m", "lengths.groups=6", "lengths.group_size=4", "lengths.mean=200", "lengths.max=1024",
         "cluster.instances=2"]


class SimulateTest(unittest.TestCase):
    def setUp(self):
        self.scratch = Path(tempfile.mkdtemp(prefix="rondo_simulate_"))
        self.addCleanup(shutil.rmtree, self.scratch, ignore_errors=True)

    def simulate(self, *args):
        result = rondo("simulate", *SMALL, *args)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def rows(self, *args):
        return [json.loads(line) for line in self.simulate(*args, "--json").splitlines()]

    def assert_refused(self, args, *words):
        result = rondo("simulate", *SMALL, *args)
        self.assertEqual(result.returncode, BAD_INPUT, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_examples_run(self):
        for example in EXAMPLES.glob("*.toml"):
            result = rondo("simulate", example, "lengths.groups=64")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(", with lengths.groups=64\n", result.stdout)  # no longer the workload of the title
            self.assertIn("\n+ speculation ", result.stdout)

    def test_pictures_show_the_run_that_is_reported(self):
        variants = "compare.variants=a: seer,b: group_round_robin"
        folder = self.scratch / "new" / "folder"
        page, trace = folder / "page.html", folder / "trace.json"
        drawn = self.rows(variants, "--seeds", 2, "--html", page, "--trace", trace)
        plain = self.rows(variants, "--seeds", 2)
        self.assertEqual([row["event_hash"] for row in drawn], [row["event_hash"] for row in plain])
        self.assertIn("<!doctype html>", page.read_text())
        self.assertEqual({path.name for path in folder.iterdir()}, {"page.html", "trace.json", "trace-1.json"})
        chunks = [event for event in json.loads(trace.read_text()) if event["ph"] == "X"]
        self.assertEqual(len(chunks), drawn[0]["chunks"])
        end_us = max(event["ts"] + event["dur"] for event in chunks)
        self.assertAlmostEqual(end_us / 1e6, drawn[0]["seconds"], places=8)  # whole nanoseconds

    def test_more_threads_than_the_system_grants_are_no_matter(self):
        hashes = [[row["event_hash"] for row in self.rows("--seeds", 3, "--threads", n)] for n in (1, 100000)]
        self.assertEqual(hashes[0], hashes[1])

    def test_the_table_is_there_even_if_the_picture_cannot_be_written(self):
        result = rondo("simulate", *SMALL, "--html", "/proc/no.html")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("/proc/no.html", result.stderr)
        self.assertIn("seer_plus", result.stdout)

    def test_options_that_do_not_go_together_are_refused(self):
        sweep = ["--sweep", "schedule.chunk_tokens=64,128"]
        self.assert_refused([*sweep, "--per-seed"], "--per-seed", "--json")
        self.assert_refused([*sweep, "--trace", self.scratch / "t.json"], "--trace", "--html")
        self.assert_refused(["--threads", "-1"], "--threads", "from 0")
        self.assert_refused(["--threads", "1.5"], "--threads", "whole number")
        self.assert_refused(["--seeds", "0"], "--seeds", "from 1")
        self.assert_refused(["compare.variants=seer", "schedule.policy=fifo"], "schedule.policy=fifo", "compare.variants=fifo")

    def test_seeds_of_a_trace_that_would_all_be_alike_are_refused(self):
        trace = self.scratch / "lengths.jsonl"
        trace.write_text("".join(json.dumps({"prompt_id": p, "sample": s, "length": 10 * (p + s + 1)}) + "\n"
                                 for p in range(3) for s in range(2)))
        self.assertEqual([row["tokens"] for row in self.rows(f"trace.file={trace}")], [10 * (1 + 2 + 2 + 3 + 3 + 4)])
        self.assert_refused([f"trace.file={trace}", "--seeds", "2"], "--seeds 2", "leave --seeds out")


if __name__ == "__main__":
    tiny_run.main()
