"""How near the fp32 peak torch's matrix products come (MKL's, in the builds for x86), on SmolLM2-135M's matrices.

    python bench/peers/matmul.py [--threads N]          with an interpreter that has torch, e.g. the oracles'

The rate to set beside rondo's `kernels_bench --benchmark_filter=model_matmuls` and `rondo bench limits`. Every matrix is
another one than the last, as in a model; the shortest of several passes counts.
"""

import argparse
import time

import torch

SHAPES = ((576, 960), (576, 576), (576, 3072), (1536, 576))  # inputs, outputs: QKV, output, gate and up, down
LAYERS = 30
PASSES = 7


def seconds_of_pass(matrices, inputs):
    begin = time.perf_counter()
    for weight in matrices:
        torch.nn.functional.linear(inputs[weight.shape[1]], weight)
    return time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    matrices = [torch.randn(outputs, inputs) for _ in range(LAYERS) for inputs, outputs in SHAPES]
    operations = 2 * LAYERS * sum(inputs * outputs for inputs, outputs in SHAPES)
    for rows in (1, 8, 16, 32, 64, 512, 2048):
        inputs = {width: torch.randn(rows, width) for width, _ in SHAPES}
        with torch.no_grad():
            seconds = min(seconds_of_pass(matrices, inputs) for _ in range(PASSES))
        print(f"{args.threads} threads, {rows} rows: {rows * operations / seconds / 1e9:.0f} GFLOP/s", flush=True)


if __name__ == "__main__":
    main()
