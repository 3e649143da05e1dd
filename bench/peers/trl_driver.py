"""One GRPO step of TRL's GRPOTrainer with the prompts and response lengths of a step of rondo.

The lengths are forced: a response is barred from ending before its length and made to end there, unless it is as long as
the limit. Everything else is what TRL does: its generation, forward, backward and AdamW. Gradient checkpointing is off,
since it would make TRL slower. A request is {"what": "step", "replay": {"prompts": …, "lengths": …},
"max_new_tokens": N, "micro_batch": M}; ask one step of a process, so that its peak memory is the step's.
"""

import os
import tempfile
import time
from contextlib import contextmanager

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import datasets  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402

import driver  # noqa: E402


class ForceLengths(transformers.LogitsProcessor):
    """Makes response i end with its token number lengths[i], the end token, and not before."""

    def __init__(self, lengths, limit, prompt_width, end_token):
        self.lengths = torch.tensor(lengths)
        self.limit, self.prompt_width, self.end_token = limit, prompt_width, end_token

    def __call__(self, input_ids, scores):
        number = input_ids.shape[1] - self.prompt_width + 1
        ends = (self.lengths == number) & (self.lengths < self.limit)
        scores[:, self.end_token] = float("-inf")
        scores[ends] = float("-inf")
        scores[ends, self.end_token] = 0.0
        return scores


class Stopwatch:
    """Seconds by phase; phases do not nest."""

    def __init__(self):
        self.seconds = {}

    @contextmanager
    def phase(self, name):
        begin = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin

    def wrap(self, owner, attribute, name):
        inner = getattr(owner, attribute)

        def timed(*args, **kwargs):
            with self.phase(name):
                return inner(*args, **kwargs)

        setattr(owner, attribute, timed)


class StepTimer(transformers.TrainerCallback):
    """The whole step, and its optimiser's part."""

    def __init__(self):
        self.begin = self.optimizer_begin = self.seconds = self.optimizer_s = None

    def on_step_begin(self, args, state, control, **_):
        self.begin = time.perf_counter()

    def on_pre_optimizer_step(self, args, state, control, **_):
        self.optimizer_begin = time.perf_counter()

    def on_optimizer_step(self, args, state, control, **_):
        self.optimizer_s = time.perf_counter() - self.optimizer_begin

    def on_step_end(self, args, state, control, **_):
        self.seconds = time.perf_counter() - self.begin


class Trl:
    def __init__(self, args):
        torch.set_num_threads(args.threads)
        self.folder, self.bf16 = args.model, args.dtype == "bf16"
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32)

    def make_trainer(self, request, output_dir, timer):
        prompts, lengths = request["replay"]["prompts"], request["replay"]["lengths"]
        samples, micro_batch = len(lengths[0]), request["micro_batch"]
        config = trl.GRPOConfig(
            output_dir=output_dir,
            use_cpu=True,
            bf16=self.bf16,
            gradient_checkpointing=False,
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=len(prompts) * samples // micro_batch,
            num_generations=samples,
            max_completion_length=request["max_new_tokens"],
            shuffle_dataset=False,
            max_steps=1,
            learning_rate=5e-6,
            beta=0.0,
            temperature=1.0,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
        )
        texts = [self.tokenizer.decode(prompt) for prompt in prompts]
        return trl.GRPOTrainer(
            model=self.model,
            args=config,
            processing_class=self.tokenizer,
            train_dataset=datasets.Dataset.from_dict({"prompt": texts}),
            # +1 and -1 in turn, as rondo's advantages in the same measurement.
            reward_funcs=lambda completions, **_: [1.0 if i % 2 == 0 else -1.0 for i in range(len(completions))],
            callbacks=[timer],
        )

    def force_replay(self, trainer, request):
        """Makes generate check the prompts and end each response where the replay says."""
        expected = [prompt for prompt in request["replay"]["prompts"] for _ in request["replay"]["lengths"][0]]
        lengths = [length for group in request["replay"]["lengths"] for length in group]
        generate, end_token = self.model.generate, self.tokenizer.eos_token_id

        def replayed(input_ids, attention_mask, **kwargs):
            found = [ids[mask.bool()].tolist() for ids, mask in zip(input_ids, attention_mask, strict=True)]
            if found != expected:
                raise RuntimeError("TRL generates for other prompts than rondo did")
            force = ForceLengths(lengths, request["max_new_tokens"], input_ids.shape[1], end_token)
            kwargs["logits_processor"] = transformers.LogitsProcessorList([force])
            return generate(input_ids=input_ids, attention_mask=attention_mask, **kwargs)

        self.model.generate = replayed
        return lengths

    def step(self, request):
        timer, watch = StepTimer(), Stopwatch()
        with tempfile.TemporaryDirectory() as output_dir:
            trainer = self.make_trainer(request, output_dir, timer)
            lengths = self.force_replay(trainer, request)
            made = []
            single_turn = trainer._generate_single_turn

            def note_lengths(*args, **kwargs):
                completions, logprobs = single_turn(*args, **kwargs)
                made.extend(len(ids) for ids in completions)
                return completions, logprobs

            trainer._generate_single_turn = note_lengths
            watch.wrap(self.model, "generate", "rollout_s")
            watch.wrap(trainer, "compute_loss", "forward_s")
            watch.wrap(trainer.accelerator, "backward", "backward_s")
            trainer.train()
        if made != lengths:
            raise RuntimeError(f"TRL's responses have lengths {made}, not {lengths}")
        return sum(lengths), timer.seconds, watch.seconds | {"optimizer_s": timer.optimizer_s}


def main():
    args = driver.arguments()
    peer = Trl(args)
    driver.serve(f"trl:{args.dtype}", f"TRL {trl.__version__}, torch {torch.__version__}", {"step": peer.step})


if __name__ == "__main__":
    main()
