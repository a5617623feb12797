"""A real engine around a stub model: everything in a step except the forward pass.

Scheduler, block pool, block tables, batch builder, verifier and committer are the real ones; the runner returns
precomputed logits.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, cast

import torch

from benchmarks.lib.stub_graphs import stub_runner
from specserve.batch.builder import BatchBuilder
from specserve.config import EngineConfig
from specserve.engine.admission import EngineLimits
from specserve.engine.assembly import Assembled
from specserve.engine.cache_journal import NO_JOURNAL
from specserve.engine.drafting import NoDraft
from specserve.engine.engine import Engine, EngineParts
from specserve.engine.prefix_cache import PrefixCache
from specserve.engine.scheduler import Scheduler
from specserve.engine.verifier import DrafterInvariantVerifier
from specserve.guards.processor import GuardedProcessor
from specserve.kv.blocks import BlockPool
from specserve.kv.cache import KVCache
from specserve.metrics import EngineMetrics
from specserve.protocols import Arithmetic
from specserve.sampling.processors import BadWordsProcessor, BiasProcessor, MinTokensProcessor, PenaltiesProcessor
from specserve.sampling.sampler import TorchSampler
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from specserve.protocols import Tokenizer
    from specserve.text.tokenizer import HfTokenizer

BLOCK_SIZE, PROMPT_LEN, MAX_LEN, MOST_ROWS = 16, 600, 16384, 4096
DEVICE = torch.device("cpu")


def stub_engine(num_requests: int, vocab_size: int, graphs: str = "none") -> Engine:
    """`graphs`: none, piecewise or full."""
    num_blocks = num_requests * MAX_LEN // BLOCK_SIZE
    planner, metrics = FixedWidthPlanner(0), EngineMetrics()
    config = EngineConfig(block_size=BLOCK_SIZE, max_num_seqs=num_requests, max_num_batched_tokens=MOST_ROWS)
    pool, arithmetic = BlockPool(num_blocks), Arithmetic("none", "none")
    prefix_cache = PrefixCache(pool, config.block_size, arithmetic, NO_JOURNAL, enabled=config.prefix_cache)
    scheduler = Scheduler(config, pool, planner, metrics, prefix_cache)
    cache = KVCache(
        num_layers=1, num_blocks=num_blocks, block_size=BLOCK_SIZE, num_kv_heads=1, head_dim=1,
        dtype=torch.bfloat16, device=DEVICE,
    )  # fmt: skip
    parts = EngineParts(
        scheduler=scheduler,
        builder=BatchBuilder(BLOCK_SIZE, DEVICE),
        runner=stub_runner(MOST_ROWS, vocab_size, graphs),
        verifier=DrafterInvariantVerifier([vocab_size - 1], TorchSampler()),
        drafting=NoDraft(),
        planner=planner,
        cache=cache,
        processors=[
            GuardedProcessor("core", processor, metrics.faults)
            for processor in (
                MinTokensProcessor([vocab_size - 1]), PenaltiesProcessor(), BiasProcessor(), BadWordsProcessor(),
            )
        ],
        guarded_observers=[],
        tokenizer=cast("Tokenizer", None),  # used for stop strings only
        metrics=metrics,
        limits=EngineLimits(vocab_size, MAX_LEN, num_blocks * BLOCK_SIZE),
        max_waiting=num_requests,
    )  # fmt: skip
    return Engine(parts)


def stub_requests(count: int, vocab_size: int) -> list[GenerateRequest]:
    """Greedy requests with different prompts, whose blocks fill up at different steps; none ends by itself."""
    rng = random.Random(0)
    params = SamplingParams(temperature=0.0, max_tokens=MAX_LEN, ignore_eos=True)
    return [
        GenerateRequest(
            request_id=f"request-{i}",
            prompt_token_ids=tuple(rng.randrange(vocab_size) for _ in range(PROMPT_LEN + i % BLOCK_SIZE)),
            params=params,
        )
        for i in range(count)
    ]


def as_assembled(engine: Engine) -> Assembled:
    """For AsyncEngine, which reads the engine and its configuration."""
    return Assembled(engine, EngineConfig(), cast("HfTokenizer", None), {})
