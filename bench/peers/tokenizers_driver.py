"""The `tokenizers` library on one thread. --model is a tokenizer.json."""

import os
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402

import driver  # noqa: E402


def main():
    args = driver.arguments()
    tokenizer = tokenizers.Tokenizer.from_file(args.model)
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def tokenize(request):
        with open(request["corpus"], encoding="utf-8", newline="") as file:
            text = file.read()
        encode = lambda: tokenizer.encode_batch_fast([text], add_special_tokens=False)  # noqa: E731
        encode()  # warms the caches, as on the other side
        begin = time.process_time()
        count = len(encode()[0].ids)
        return count, time.process_time() - begin, {}

    driver.serve("tokenizers", f"tokenizers {tokenizers.__version__}", {"tokenize": tokenize})


if __name__ == "__main__":
    main()
