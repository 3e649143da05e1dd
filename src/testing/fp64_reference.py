"""transformers' Llama computed in fp64: the truth that oracle tests measure errors against."""
import contextlib

import torch


class Fp64Torch:
    """torch, but what transformers asks to be computed in fp32 is computed in fp64."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def patched(module, name, value):
    """`module.name` is `value` inside the block."""
    original = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, original)
