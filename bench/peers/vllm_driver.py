"""vLLM's CPU build, its engine stepped in this process: greedy, no end of sequence, no prefix caching."""

import os
import time

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import driver  # noqa: E402  (before vLLM prints)
import vllm  # noqa: E402

DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
MAX_SEQUENCES = 64
MAX_LENGTH = 2560
KV_GIB = {"fp32": 3, "fp16": 2, "bf16": 2}


class Vllm:
    def __init__(self, args):
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(KV_GIB[args.dtype]))
        os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{args.threads - 1}")
        os.environ.setdefault("OMP_NUM_THREADS", str(args.threads))
        self.engine = vllm.LLM(
            model=args.model,
            dtype=DTYPES[args.dtype],
            skip_tokenizer_init=True,
            enable_prefix_caching=False,
            max_model_len=MAX_LENGTH,
            max_num_seqs=MAX_SEQUENCES,
            max_num_batched_tokens=2048,
            disable_log_stats=True,
        ).llm_engine
        self.served = 0

    def token_times(self, request, new_tokens):
        """Seconds from the start to each step, with the tokens that there were after it."""
        prompts = driver.prompts(request)
        params = vllm.SamplingParams(temperature=0, ignore_eos=True, max_tokens=new_tokens, detokenize=False)
        begin = time.perf_counter()
        for prompt in prompts:
            self.engine.add_request(str(self.served), {"prompt_token_ids": prompt}, params)
            self.served += 1
        counts, times = {}, []
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                counts[output.request_id] = len(output.outputs[0].token_ids)
            times.append((time.perf_counter() - begin, len(counts), sum(counts.values())))
        if sum(counts.values()) != new_tokens * len(prompts):
            raise RuntimeError(f"vLLM made {sum(counts.values())} tokens instead of {new_tokens * len(prompts)}")
        return times

    def decode(self, request):
        times = self.token_times(request, request["new_tokens"])
        all_started = next(t for t in times if t[1] == request["batch"])
        return times[-1][2] - all_started[2], times[-1][0] - all_started[0], {}

    def prefill(self, request):
        times = self.token_times(request, 1)
        return request.get("batch", 1) * request["prompt_tokens"], times[-1][0], {}


def main():
    args = driver.arguments()
    peer = Vllm(args)
    driver.serve(f"vllm:{args.dtype}", f"vLLM {vllm.__version__}", {"decode": peer.decode, "prefill": peer.prefill})


if __name__ == "__main__":
    main()
