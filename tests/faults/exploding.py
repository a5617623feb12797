"""A kernel set that raises when it meets the rows of a marked request, at a chosen call of the forward pass.

The marked request's prompt holds `MARKER`, whose embedding is NaN in `marked_model`. NaN stays in the rows of its own
request through all layers, so every call that computes such a row can be told from the others without knowing requests.
"""

from __future__ import annotations

import math

from safetensors.torch import load_file, save_file

from specserve.kernels.torch_kernels import TorchKernels
from specserve.sampling.sampler import TorchSampler
from specserve_workbench.testing.toy import write_checkpoint

MARKER = 301


def marked_model(path, **config):
    model = write_checkpoint(path, **config)
    tensors = load_file(model / "model.safetensors")
    tensors["model.embed_tokens.weight"][MARKER] = math.nan
    save_file(tensors, model / "model.safetensors", metadata={"format": "pt"})
    return model


class Boom(Exception):
    pass


class Countdown:
    """Counts calls that compute a marked row: `length` of them pass, the next one raises and the count starts again."""

    def __init__(self, length):
        self.length = self.left = length
        self.num_raised = 0

    def count(self, *tensors):
        if any(bool(t.isnan().any()) for t in tensors):
            self.left -= 1
            if self.left < 0:
                self.left = self.length
                self.num_raised += 1
                raise Boom("a marked row")


class ExplodingKernels(TorchKernels):
    """`length`: how many calls on marked rows go well before the one that raises."""

    name = "exploding"

    def __init__(self, length):
        super().__init__()
        self.countdown = Countdown(length)

    def linear(self, x, weight, bias):
        self.countdown.count(x)
        return super().linear(x, weight, bias)

    def prepare_linear(self, weight, bias):
        return None

    def rms_norm(self, x, weight, eps):
        self.countdown.count(x)
        return super().rms_norm(x, weight, eps)

    def rotary(self, x, cos, sin):
        self.countdown.count(x)
        return super().rotary(x, cos, sin)

    def silu_and_multiply(self, gate_up):
        self.countdown.count(gate_up)
        return super().silu_and_multiply(gate_up)


class ExplodingSampler(TorchSampler):
    """Raises in `method` whenever one of the logits' rows that it is asked for is marked."""

    def __init__(self, method):
        self.method = method
        self.countdown = Countdown(0)

    def argmax_tokens(self, logits):
        self.look("argmax_tokens", logits)
        return super().argmax_tokens(logits)

    def target_tokens(self, logits, rows):
        self.look("target_tokens", logits[[row.row for row in rows]])
        return super().target_tokens(logits, rows)

    def token_logprobs(self, logits, tokens, counts):
        self.look("token_logprobs", logits)
        return super().token_logprobs(logits, tokens, counts)

    def look(self, method, logits):
        if method == self.method:
            self.countdown.count(logits)


class KernelsWithExplodingSampler(TorchKernels):
    name = "exploding-sampler"

    def __init__(self, method):
        super().__init__()
        self.sampler = ExplodingSampler(method)
