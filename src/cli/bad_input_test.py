"""Bad input ends with a message that says what to do, and not with zero."""

import json
import os
import resource
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import tiny_run
from tiny_run import BINARIES, TinyRunTest, files_below, outcome, rondo

BAD_INPUT = 2
FAILED = 1


def edit_json(path, **changes):
    document = json.loads(path.read_text())
    document.update(changes)
    path.write_text(json.dumps(document))


def edit_tensor(path, name, **changes):
    """Changes a tensor's entry in the header of a safetensors file."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header[name].update(changes)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length:])


class BadInputTest(TinyRunTest):
    def assert_refused(self, result, *words, code=BAD_INPUT):
        text = result.stdout + result.stderr
        self.assertEqual(result.returncode, code, text)
        for word in words:
            self.assertIn(word, text)

    def assert_train_refused(self, overrides, *words, code=BAD_INPUT):
        run_dir = self.scratch / "refused"
        self.addCleanup(shutil.rmtree, run_dir, ignore_errors=True)
        self.assert_refused(self.train(run_dir, *overrides), *words, code=code)
        self.assertFalse((run_dir / "metrics.jsonl").exists(), "a refused run leaves no log")

    def broken_model(self, name, damage):
        """A copy of the model that `damage(folder)` has changed."""
        folder = self.scratch / name
        shutil.copytree(self.model, folder)
        damage(folder)
        return folder


class CommandLineTest(BadInputTest):
    def test_unknown_subcommand(self):
        self.assert_refused(rondo("trian"), "unknown subcommand 'trian'", "'train'", "--help")
        self.assert_refused(rondo("evaluate", "model.path=x"), "'evaluate'", "'eval")

    def test_no_subcommand(self):
        self.assert_refused(rondo(), "subcommand is required")

    def test_help_is_no_error(self):
        self.assertEqual(rondo("--help").returncode, 0)
        for command in ("train", "generate", "eval", "config", "bench"):
            result = rondo(command, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn("key=value", result.stdout)

    def test_mistyped_key_names_the_nearest(self):
        self.assert_train_refused(["trainer.total_stepps=3"], "trainer.total_stepps", "trainer.total_steps")
        self.assert_refused(rondo("config", "actor.optim.lrr=1"), "actor.optim.lr")

    def test_mistyped_value_names_what_is_expected(self):
        self.assert_train_refused(["rollout.n=many"], "rollout.n", "many")
        self.assert_train_refused(["reward.function=exactmatch"], "exact_match")

    def test_an_option_of_another_benchmark(self):
        rollout = [["--policies", "seer"], ["--ablation"], ["--lengths", "l.jsonl"], ["--trace", "t"]]
        batches = [["--batch", "4"], ["--new-tokens", "4"]]
        prompts = [["--prompts", "p.jsonl"], ["--prompt-tokens", "4"]]
        for what, options in (("decode", rollout), ("train", rollout), ("prefill", rollout + [["--new-tokens", "4"]]),
                              ("spec", rollout + prompts), ("step", rollout + batches + prompts),
                              ("rollout", batches + prompts),
                              ("limits", rollout + batches + prompts + [["--repeats", "2"]])):
            for option in options:
                self.assert_refused(rondo("bench", what, *option), f"{option[0]} has no effect on `rondo bench {what}`")

    def test_help_of_an_option_begins_with_the_benchmarks_that_heed_it(self):
        text = " ".join(rondo("bench", "--help").stdout.split())
        for option, value, heeding in (("--batch", ["4"], "decode, prefill, train, spec"),
                                       ("--prompts", ["p.jsonl"], "decode, prefill, train"),
                                       ("--new-tokens", ["4"], "decode, train, spec"),
                                       ("--repeats", ["2"], "decode, prefill, train, step, rollout, spec"),
                                       ("--ablation", [], "rollout")):
            self.assertRegex(text, f"{option} [^-]*{heeding}: ")
            for what in heeding.split(", "):
                result = rondo("bench", what, option, *value)
                self.assert_refused(result, "model.path is not set")

    def test_batches_that_cannot_be_measured(self):
        arguments = self.arguments(self.scratch / "none")
        for what in ("decode", "prefill", "train", "spec"):
            for bad in ("0", "-3", "1,x"):
                self.assert_refused(rondo("bench", what, *arguments, f"--batch={bad}"), "--batch", "whole number from 1")
        self.assert_refused(rondo("bench", "decode", *arguments, "--batch", "1,100000"),
                            "100000 responses never decode together", "engine.batch.max_running")
        self.assert_refused(rondo("bench", "decode", *arguments, "--new-tokens", "1"), "at least 2")

    def test_config_file(self):
        self.assert_refused(rondo("train", self.scratch / "none.toml"), "none.toml")
        broken = self.scratch / "broken.toml"
        broken.write_text("[model]\npath = \n")
        self.assert_refused(rondo("train", broken), "broken.toml:2")
        broken.write_text("[modell]\npath = 'x'\n")
        self.assert_refused(rondo("train", broken), "broken.toml", "model")

    def test_generate_needs_prompts_from_one_place(self):
        arguments = self.arguments(self.scratch / "none")
        self.assert_refused(rondo("generate", *arguments), "--prompt", "--file")
        self.assert_refused(rondo("generate", *arguments, "--prompt", "a", "--file", self.train_file), "one of the two")

    def test_options_without_effect(self):
        arguments = self.arguments(self.scratch / "none")
        self.assert_refused(rondo("generate", *arguments, "--raw", "--file", self.train_file), "--raw", "--prompt")
        self.assert_refused(rondo("config", "--markdown", "rollout.n=3"), "--markdown")
        self.assert_refused(rondo("simulate", "--json", "--per-seed"), "--per-seed")

    def test_more_threads_than_the_limits_allow(self):
        limit = 2 << 30  # of addresses, of which each thread takes 8 MiB for its stack
        result = self.train(self.scratch / "threads", "trainer.threads=1024",
                            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
        self.assert_refused(result, "trainer.threads", "rollout.instances", code=FAILED)

    def test_output_that_cannot_be_written(self):
        arguments = self.arguments(self.scratch / "unseen")
        for command in (["config"], ["eval"], ["generate", "--prompt", "a", "--raw"], ["train"], ["simulate"],
                        ["bench", "limits"]):
            with self.subTest(command=command), open("/dev/full", "w", encoding="ascii") as full:
                command += [] if command[0] in ("simulate", "bench") else arguments
                result = subprocess.run([BINARIES["rondo"], *map(str, command)], stdout=full, stderr=subprocess.PIPE,
                                        text=True, timeout=tiny_run.TIMEOUT_S)
                self.assertEqual(result.returncode, FAILED, result.stderr)
                self.assertIn("cannot write the output: No space left on device", result.stderr)

    def test_eval_needs_held_out_prompts(self):
        self.assert_refused(rondo("eval", *self.arguments(self.scratch / "none"), "data.val_files=[]"),
                            "data.val_files is empty")


class ModelFolderTest(BadInputTest):
    def test_missing_folder(self):
        self.assert_train_refused([f"model.path={self.scratch / 'no_model'}"], "no_model", "config.json")

    def test_missing_files(self):
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            folder = self.broken_model(f"without_{name}", lambda folder: (folder / name).unlink())
            self.assert_train_refused([f"model.path={folder}"], name.split(".")[0])

    def test_truncated_weights(self):
        def cut(size):
            def damage(folder):
                path = folder / "model.safetensors"
                path.write_bytes(path.read_bytes()[:size])
            return damage
        for size in (0, 5, 200, 50000):
            folder = self.broken_model(f"cut_{size}", cut(size))
            self.assert_train_refused([f"model.path={folder}"], "model.safetensors", code=FAILED)

    def test_wrong_dtype_and_shape(self):
        name = "model.layers.1.mlp.down_proj.weight"
        folder = self.broken_model("dtype", lambda f: edit_tensor(f / "model.safetensors", name, dtype="I32"))
        self.assert_train_refused([f"model.path={folder}"], name, "I32")
        folder = self.broken_model("shape", lambda f: edit_tensor(f / "model.safetensors", name, shape=[48, 32]))
        self.assert_train_refused([f"model.path={folder}"], name, "[48, 32]", "[32, 48]")

    def test_dimensions_that_the_weights_do_not_have(self):
        folder = self.broken_model("layers", lambda f: edit_json(f / "config.json", num_hidden_layers=3))
        result = self.train(self.scratch / "refused", f"model.path={folder}")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("model.layers.2", result.stderr)
        folder = self.broken_model("family", lambda f: edit_json(f / "config.json", architectures=["GPT2LMHeadModel"],
                                                                  model_type="gpt2"))
        self.assert_train_refused([f"model.path={folder}"], "GPT2LMHeadModel")

    def test_value_beyond_the_storage_type(self):
        def damage(folder):
            path = folder / "model.safetensors"
            data = path.read_bytes()
            path.write_bytes(data[:-4] + struct.pack("<f", 1e6))
        folder = self.broken_model("range", damage)
        self.assert_train_refused([f"model.path={folder}"], "weight", "fp16", code=FAILED)

    def test_tokens_beyond_the_vocabulary(self):
        folder = self.broken_model("vocabulary", lambda f: edit_json(f / "config.json", vocab_size=258, bos_token_id=0))
        self.assert_train_refused([f"model.path={folder}"], "259 tokens", "258")


class DataTest(BadInputTest):
    def test_missing_and_empty_files(self):
        empty = self.scratch / "empty.jsonl"
        empty.write_text("")
        self.assert_train_refused([f"data.train_files={empty}"], "data.train_files", "empty.jsonl")
        self.assert_train_refused(["data.train_files=/none.jsonl"], "data.train_files", "/none.jsonl")
        self.assert_train_refused(["data.train_files=[]"], "data.train_files is empty")

    def test_bad_row_is_named_by_its_line(self):
        bad = self.scratch / "bad.jsonl"
        bad.write_text('{"prompt": "a", "label": "1"}\n{"prompt": "b"\n')
        result = self.train(self.scratch / "refused", f"data.train_files={bad}")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("bad.jsonl:2", result.stderr)

    def test_prompts_over_the_limit(self):
        self.assert_train_refused(["data.max_prompt_length=4"], "data.max_prompt_length = 4")
        long = self.write_rows("long.jsonl", ["short", "a prompt that is too long", "again"])
        self.assert_train_refused([f"data.train_files={long}", "data.max_prompt_length=8", "data.overlong_prompts=error"],
                                  f"the prompt at {long}:2 has 25 tokens", "skip")
        result = self.train(self.scratch / "skipped", f"data.train_files={long}", "data.max_prompt_length=8")
        self.assert_ok(result)
        self.assertIn("1 of 3 prompts are longer", result.stderr)

    def test_lengths_and_memory_that_do_not_fit(self):
        self.assert_train_refused(["data.max_response_length=600"], "max_position_embeddings = 512")
        self.assert_train_refused(["engine.kv_memory=8KiB", "data.max_prompt_length=100"], "engine.kv_memory", "at least")

    def test_ground_truth_in_the_wrong_form(self):
        words = self.scratch / "words.jsonl"
        words.write_text('{"prompt": "a", "label": "seven"}\n')
        self.assert_train_refused([f"data.train_files={words}"], f"{words}:1", "ground truth", "seven", "last_number")
        self.assert_refused(rondo("eval", *self.arguments(self.scratch / "none"), f"data.val_files={words}"),
                            "no response can match", "seven")

    def test_groups_without_variance_train_nothing(self):
        run_dir = self.scratch / "flat"
        self.assert_ok(self.train(run_dir, "reward.function=exact_match", "reward.format_score=0"))
        last = json.loads((run_dir / "metrics.jsonl").read_text().splitlines()[-1])
        self.assertEqual((last["step"], last["actor/updates"], last["frac_reward_zero_std"]), (6, 0, 1.0))
        trained = outcome(run_dir)["model"]
        untrained_dir = self.scratch / "untrained"
        self.assert_ok(self.train(untrained_dir, "actor.optim.lr=0", "actor.optim.weight_decay=0"))
        self.assertEqual(trained["model.safetensors"], outcome(untrained_dir)["model"]["model.safetensors"])


class RunFolderTest(BadInputTest):
    def test_folder_that_another_process_uses(self):
        run_dir = self.scratch / "shared"
        child = self.start(run_dir, "trainer.total_steps=100000", "trainer.test_freq=0")
        while not child.stdout.readline().startswith("step:1/"):
            self.assertIsNone(child.poll())
        self.assert_refused(self.train(run_dir), "in use by another rondo process", "trainer.run_dir", code=FAILED)

    def test_used_folder_with_resume_disabled(self):
        run_dir = self.scratch / "used"
        self.assert_ok(self.train(run_dir))
        before = files_below(run_dir)
        self.assert_refused(self.train(run_dir, "trainer.resume_mode=disable"), "holds a run already")
        self.assertEqual(files_below(run_dir), before)

    def test_resuming_with_another_model_is_refused(self):
        run_dir = self.scratch / "other_model"
        self.assert_killed(self.train(run_dir, fault="step_begin:4"), "step_begin")
        state = run_dir / "checkpoints" / "global_step_2" / "trainer" / "state.safetensors"
        edit_tensor(state, "master.final_norm", shape=[4, 8])
        self.assert_refused(self.train(run_dir), "master.final_norm", "the model the run began with")

    def test_resuming_with_other_settings_warns(self):
        run_dir = self.scratch / "settings"
        self.assert_killed(self.train(run_dir, fault="step_begin:4"), "step_begin")
        result = self.train(run_dir, "actor.optim.lr=2e-3", "trainer.threads=2")
        self.assert_ok(result)
        self.assertIn("actor.optim.lr", result.stderr)
        self.assertNotIn("trainer.threads", result.stderr)

    def test_resuming_with_other_data_under_the_same_path_warns(self):
        run_dir = self.scratch / "data"
        rows = self.write_rows("rows.jsonl", [f"say {i}" for i in range(6)])
        self.assert_killed(self.train(run_dir, f"data.train_files={rows}", fault="step_begin:4"), "step_begin")
        self.write_rows("rows.jsonl", [f"say {i}" for i in range(5)])
        result = self.train(run_dir, f"data.train_files={rows}")
        self.assert_ok(result)
        self.assertIn("other training prompts than before", result.stderr)
        self.assertIn("6 prompts -> 5 prompts; the run goes on with the new ones at step 3", result.stderr)


class FullDiskTest(BadInputTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        unbroken = cls.scratch / "unbroken"
        if cls.train(unbroken).returncode != 0:
            raise AssertionError("the unbroken run failed")
        cls.expected = outcome(unbroken)

    def assert_checkpoints(self, run_dir, *steps):
        names = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
        self.assertEqual(names, [*(f"global_step_{step}" for step in steps), "latest"])

    def test_file_size_limit(self):
        # Too little for config.toml, for the model, for the trainer's state.
        for limit in (1000, 20000, 200000):
            with self.subTest(limit=limit):
                run_dir = self.scratch / f"limit_{limit}"
                self.assert_killed(self.train(run_dir, fault="step_begin:3"), "step_begin")
                result = self.train(run_dir, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
                self.assert_refused(result, "free some space", str(run_dir), code=FAILED)
                self.assert_checkpoints(run_dir, 2)
                self.assert_ok(self.train(run_dir))
                self.assert_same_outcome(run_dir, self.expected, f"limit {limit}")

    def mount_disk(self, size):
        disk = Path(tempfile.mkdtemp(dir=self.scratch))
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
        if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
            self.skipTest("needs to mount a small file system")
        self.addCleanup(subprocess.run, ["umount", str(disk)], check=True)
        return disk

    def test_disk_too_small_for_a_checkpoint(self):
        run_dir = self.mount_disk("100k") / "run"
        self.assert_refused(self.train(run_dir), "a checkpoint takes", str(run_dir), "trainer.run_dir", code=FAILED)
        self.assertEqual((run_dir / "metrics.jsonl").read_text(), "", "told before any work is done")

    def test_disk_too_small_for_the_checkpoints_that_exist_at_a_time(self):
        run_dir = self.mount_disk("600k") / "run"
        self.assert_refused(self.train(run_dir), "up to 3 will be there at a time (trainer.max_ckpt_to_keep = 2, and the "
                            "one being written)", str(run_dir), "trainer.save_freq", code=FAILED)
        self.assertEqual((run_dir / "metrics.jsonl").read_text(), "", "told before any work is done")
        self.assert_ok(self.train(run_dir, "trainer.save_freq=0"))

    def test_full_file_system(self):
        # Room for three checkpoints, the most at a time, but not for rollouts and timeline beside them.
        disk = self.mount_disk("1050k")
        run_dir = disk / "run"
        self.assert_refused(self.train(run_dir), "free some space", "No space left", code=FAILED)
        self.assert_checkpoints(run_dir, 2, 4)
        subprocess.run(["mount", "-o", "remount,size=8m", str(disk)], check=True)
        self.assert_ok(self.train(run_dir))
        self.assert_same_outcome(run_dir, self.expected, "after making room")


if __name__ == "__main__":
    tiny_run.main()
