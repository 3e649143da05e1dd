"""The `tokenizers` library on one thread. --model is a tokenizer.json."""

import os
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tokenizers  # noqa: E402

import driver  # noqa: E402

DOCUMENT = 4000  # characters


def main():
    args = driver.arguments()
    tokenizer = tokenizers.Tokenizer.from_file(args.model)
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def timed(texts):
        """Tokens and CPU seconds of one pass, after one to warm the caches, as on the other side."""
        for _ in range(2):
            begin = time.process_time()
            count = sum(len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False))
            seconds = time.process_time() - begin
        return count, seconds

    def tokenize(request):
        with open(request["corpus"], encoding="utf-8", newline="") as file:
            text = file.read()
        whole, whole_s = timed([text])
        pieces, pieces_s = timed([text[i : i + DOCUMENT] for i in range(0, len(text), DOCUMENT)])
        # The library is slower on one long text than on documents: its better rate counts, on the whole's tokens.
        return whole, min(whole_s, pieces_s * whole / pieces), {"whole_seconds": whole_s}

    driver.serve("tokenizers", f"tokenizers {tokenizers.__version__}", {"tokenize": tokenize})


if __name__ == "__main__":
    main()
