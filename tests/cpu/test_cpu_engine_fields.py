"""Every sampling field at its ends in whole engines: torch's and native kernels, with and without drafts.

The toy model in float32. Its logits differ between the kernel sets in their last bits; no row of these requests has two
scores that are as close as that.
"""

from __future__ import annotations

import pytest
from sampling_fields import REPORTED, is_admitted, values_of

from specserve.types import SpeculationParams
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request
from specserve_workbench.testing.toy_tokenizer import VOCAB_SIZE


def requests_of_every_field():
    """Each value sampled and, where it is no temperature, greedy."""
    fields = values_of(VOCAB_SIZE) | REPORTED | {"max_tokens": (1, 2)}
    requests = []
    for field, value in ((field, value) for field, values in fields.items() for value in values):
        for temperature in (0.8,) if field == "temperature" else (0.8, 0.0):
            at = len(requests)
            params = {"max_tokens": 30 if field == "min_tokens" else 12, "temperature": temperature, "seed": at}
            params |= {"logprobs": 2, field: value}
            if is_admitted(VOCAB_SIZE, params):
                speculation = SpeculationParams(max_draft_tokens=(None, 0, 3)[at % 3])
                prompt = [(7 * at + t) % 250 for t in range(1 + at % 9)]
                requests.append(toy_request(str(at), prompt, speculation=speculation, **params))
    return requests


def outputs_of(model, requests, plugins, future=None):
    drafter = future and NoisyDrafter(future, p=0.7, max_width=16, vocab_size=VOCAB_SIZE)
    run = run_requests(make_engine(model, drafter, plugins=plugins, max_num_seqs=16).engine, requests)
    assert (run.metrics.num_accepted_tokens > 100) is (future is not None)
    return run


def assert_near(left, right):
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert (a.token_id, a.top_ids) == (b.token_id, b.top_ids)
        assert [a.logprob, *a.top_logprobs] == pytest.approx([b.logprob, *b.top_logprobs], rel=1e-5, abs=1e-5)


def test_both_kernel_sets_decide_alike_with_and_without_drafts(toy_model):
    requests = requests_of_every_field()
    torchs, native = (outputs_of(toy_model, requests, plugins) for plugins in ((), ("cpu",)))
    assert native.tokens() == torchs.tokens()
    for name, output in native.outputs.items():
        assert output.finish_reason == torchs.outputs[name].finish_reason
        assert_near(output.logprobs, torchs.outputs[name].logprobs)
        assert_near(output.prompt_logprobs, torchs.outputs[name].prompt_logprobs)
    for run, plugins in ((torchs, ()), (native, ("cpu",))):
        assert outputs_of(toy_model, requests, plugins, run.tokens()).decided() == run.decided()
