"""Sampled tokens follow the target distribution, with drafts and without: chi-square over many seeds."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch

from covering import covering
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request

pytestmark = pytest.mark.usefixtures("each_kernel_set")

SAMPLES = 4000
PROMPT = tuple(range(20, 45))


def distribution(model, prompt, top_k):
    """{token: P} under temperature 1 and top-k, from the engine's own raw log-probabilities at one position."""
    output = run(model, [toy_request("p", prompt, max_tokens=1, logprobs=top_k)]).outputs["p"]
    ids, values = output.logprobs[0].top_ids, torch.tensor(output.logprobs[0].top_logprobs)
    return dict(zip(ids, torch.softmax(values, 0).tolist(), strict=True))


@covering(each_kernel_set=["torch", "cpu"], drafted=[False, True], indirect=["each_kernel_set"])
def test_pairs_of_sampled_tokens_follow_their_joint_distribution(toy_model, drafted):
    first = distribution(toy_model, PROMPT, 4)
    joint = {(a, b): p * q for a, p in first.items() for b, q in distribution(toy_model, (*PROMPT, a), 4).items()}
    requests = [
        toy_request(str(i), PROMPT, max_tokens=3, temperature=1.0, top_k=4, seed=i, ignore_eos=True)
        for i in range(SAMPLES)
    ]
    likely = {str(i): [a, b, b] for i, (a, b) in enumerate(itertools.islice(itertools.cycle(joint), SAMPLES))}
    drafter = NoisyDrafter(likely, p=0.9, max_width=6, vocab_size=TOY_VOCAB) if drafted else None
    outcome = run(toy_model, requests, drafter, max_num_seqs=64, max_waiting=SAMPLES)
    counts = Counter(tuple(tokens[:2]) for tokens in outcome.tokens().values())
    assert set(counts) <= set(joint)
    statistic = sum((counts[pair] - SAMPLES * p) ** 2 / (SAMPLES * p) for pair, p in joint.items())
    # 16 cells: the 99.99 % point of chi-square with 15 degrees of freedom is 44.3
    assert statistic < 44.3
    assert (outcome.metrics.num_accepted_tokens > 100) == drafted
