"""Rows of logits and requests of every kind, for samplers of any device. No pytest."""

from __future__ import annotations

import torch

from specserve.batch.request import Request
from specserve.protocols import ScoredRow
from specserve.sampling.processors import BadWordsProcessor, BiasProcessor, PenaltiesProcessor
from specserve.types import GenerateRequest, SamplingParams

CUTOFFS = ({}, {"top_k": 5}, {"top_k": 200}, {"top_p": 0.3}, {"top_p": 0.95}, {"min_p": 0.05},
           {"top_k": 100, "top_p": 0.9, "min_p": 0.01})  # fmt: skip
PENALTIES = {"repetition_penalty": 1.2, "presence_penalty": 0.3, "bad_words": ((5,), (1, 7)), "logit_bias": {3: 2.0}}


def admitted(vocab_size=320, *, seed=0, generated=(), **params):
    wire = GenerateRequest(request_id="r", prompt_token_ids=(1, 2), params=SamplingParams(**params))
    request = Request.admit(wire, seed=seed, arrival=0.0, order=0, max_len=99)
    request.tokens += generated
    makers = (PenaltiesProcessor(), BiasProcessor(), BadWordsProcessor())
    started = [maker.start(request, vocab_size) for maker in makers]
    request.processors = [state for state in started if state is not None]
    return request


def random_logits(rows, vocab_size, scale=2.0):
    return torch.randn(rows, vocab_size, generator=torch.Generator().manual_seed(vocab_size)) * scale


def varied_rows(count, vocab_size):
    """Sampled with every cut-off, greedy with and without processors, paths of several lengths."""
    rows = []
    for i in range(count):
        params = {"temperature": (1.0, 0.7, 1.3, 0.0)[i % 4], **CUTOFFS[i % 7], **(PENALTIES if i % 3 == 0 else {})}
        rows.append(ScoredRow(i, admitted(vocab_size, seed=i, **params), tuple(range(i % 3))))
    return rows
