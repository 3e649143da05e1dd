"""What the peers' drivers share: requests come as JSON lines on stdin, answers go as JSON lines to stdout.

A driver first answers {"peer": …, "version": …} once its model is loaded. A request is {"what": NAME, …}, and its answer
{"peer": …, "case": NAME, "tokens_per_s": …, "tokens": …, "seconds": …, "peak_memory_gb": …, …}. End of input ends it.
What a library prints goes to stderr, so that stdout holds answers alone. A driver runs by hand too:

    echo '{"what": "prefill", "prompts": "p.jsonl", "prompt_tokens": 512}' | python transformers_driver.py --model FOLDER
"""

import argparse
import json
import os
import resource
import sys

_answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="model folder or file")
    parser.add_argument("--dtype", default="fp32", help="fp32, fp16 or bf16")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser.parse_args()


def prompts(request):
    """The first `batch` prompts of the request's file, `prompt_tokens` tokens each."""
    count, length = request.get("batch", 1), request["prompt_tokens"]
    rows = []
    with open(request["prompts"], encoding="utf-8") as lines:
        for line in lines:
            if len(rows) == count:
                break
            rows.append(json.loads(line)["tokens"][:length])
    if len(rows) < count or any(len(row) < length for row in rows):
        raise ValueError(f"{request['prompts']} holds fewer than {count} prompts of {length} tokens")
    return rows


def serve(peer, version, handlers):
    """Answers requests until the input ends. A handler takes the request and returns tokens, seconds, and a dict of
    more to say."""
    print(json.dumps({"peer": peer, "version": version}), file=_answers)
    for line in sys.stdin:
        request = json.loads(line)
        tokens, seconds, more = handlers[request["what"]](request)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        answer = {
            "peer": peer,
            "case": request["what"],
            "tokens_per_s": tokens / seconds,
            "tokens": tokens,
            "seconds": seconds,
            "peak_memory_gb": peak / 1e9,
        }
        print(json.dumps(answer | more), file=_answers)
