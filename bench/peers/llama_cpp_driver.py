"""llama.cpp through its C interface: batched decode and prefill as its own llama-batched-bench does them.

As there, the next tokens are given, not sampled, so no time of sampling counts against it. --model is a GGUF file; its
weights' type is the file's.
"""

import time

import llama_cpp as llama

import driver

MAX_BATCH = 2048


class Context:
    """One llama context for `batch` sequences of up to `length` tokens."""

    def __init__(self, model, threads, batch, length):
        params = llama.llama_context_default_params()
        params.n_seq_max = batch
        params.n_ctx = batch * -(-length // 256) * 256
        params.n_batch = MAX_BATCH
        params.n_threads = params.n_threads_batch = threads
        self.handle = llama.llama_init_from_model(model, params)
        if not self.handle:
            raise RuntimeError(f"llama.cpp made no context for {batch} sequences of {length} tokens")
        self.batch = llama.llama_batch_init(MAX_BATCH, 0, 1)

    def close(self):
        llama.llama_batch_free(self.batch)
        llama.llama_free(self.handle)

    def run(self, rows):
        """Computes rows of (token, position, sequence, wants logits), at most MAX_BATCH."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, logits) in enumerate(rows):
            batch.token[i] = token
            batch.pos[i] = position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = sequence
            batch.logits[i] = logits
        status = llama.llama_decode(self.handle, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        llama.llama_synchronize(self.handle)

    def prefill(self, prompts):
        rows = [
            (token, position, sequence, position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        for start in range(0, len(rows), MAX_BATCH):
            self.run(rows[start : start + MAX_BATCH])


class LlamaCpp:
    def __init__(self, args):
        llama.llama_backend_init()
        params = llama.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama.llama_model_load_from_file(args.model.encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {args.model}")
        self.threads = args.threads

    def decode(self, request):
        prompts = driver.prompts(request)
        steps = request["new_tokens"] - 1
        context = Context(self.model, self.threads, len(prompts), request["prompt_tokens"] + steps)
        context.prefill(prompts)
        begin = time.perf_counter()
        for step in range(steps):
            context.run([(prompt[step % len(prompt)], len(prompt) + step, i, 1) for i, prompt in enumerate(prompts)])
        seconds = time.perf_counter() - begin
        context.close()
        return steps * len(prompts), seconds, {}

    def prefill(self, request):
        prompts = driver.prompts(request)
        context = Context(self.model, self.threads, len(prompts), request["prompt_tokens"] + 1)
        begin = time.perf_counter()
        context.prefill(prompts)
        seconds = time.perf_counter() - begin
        context.close()
        return len(prompts) * request["prompt_tokens"], seconds, {}


def main():
    args = driver.arguments()
    peer = LlamaCpp(args)
    features = llama.llama_print_system_info().decode()
    driver.serve(
        f"llama_cpp:{args.dtype}",
        f"llama-cpp-python {llama.__version__} ({features.strip()})",
        {"decode": peer.decode, "prefill": peer.prefill},
    )


if __name__ == "__main__":
    main()
