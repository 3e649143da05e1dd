"""transformers' generate: greedy, no end of sequence, all prompts in one batch."""

import time

import torch
import transformers

import driver

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class TokenTimes(transformers.StoppingCriteria):
    """Notes when each token was there; stops nothing."""

    def __init__(self):
        self.times = []

    def __call__(self, input_ids, scores, **_):
        self.times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


class Transformers:
    def __init__(self, args):
        torch.set_num_threads(args.threads)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=DTYPES[args.dtype])
        self.model.eval()
        self.model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)

    def token_times(self, request, new_tokens):
        """Seconds from the start to each of the new tokens."""
        ids = torch.tensor(driver.prompts(request))
        times = TokenTimes()
        begin = time.perf_counter()
        with torch.inference_mode():
            self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=new_tokens,
                stopping_criteria=transformers.StoppingCriteriaList([times]),
            )
        if len(times.times) != new_tokens:
            raise RuntimeError(f"generate made {len(times.times)} tokens instead of {new_tokens}")
        return [t - begin for t in times.times]

    def decode(self, request):
        times = self.token_times(request, request["new_tokens"])
        return (len(times) - 1) * request["batch"], times[-1] - times[0], {}

    def prefill(self, request):
        times = self.token_times(request, 1)
        return request.get("batch", 1) * request["prompt_tokens"], times[0], {}


def main():
    args = driver.arguments()
    peer = Transformers(args)
    driver.serve(
        f"transformers:{args.dtype}",
        f"transformers {transformers.__version__}, torch {torch.__version__}",
        {"decode": peer.decode, "prefill": peer.prefill},
    )


if __name__ == "__main__":
    main()
