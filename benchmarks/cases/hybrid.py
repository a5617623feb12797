"""What it costs to serve prefill and decode by different attention backends (the hybrid_attn plugin).

The same backend for both phases, so that only the dispatch differs: alone; selected twice through hybrid_attn, which
then builds it once; and split, where every step with rows of both phases is cut in two and joined again, as with two
different backends. Requests arrive one after the other, so that most steps of the first half have both phases.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate
from benchmarks.lib.workload import DTYPE, PROMPT_LEN, demo_config, greedy, prompts, serve_all
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.engine.assembly import assemble
from specserve.hookspecs import hookimpl
from specserve.plugins.host import PluginHost
from specserve_hybrid_attn.attention import HybridAttention

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from specserve.engine.assembly import Assembled
    from specserve.engine.engine import Engine
    from specserve.kv.cache import KVCache
    from specserve.protocols import AttentionBackend, AttentionFactory, AttentionSpec

TARGET = 1.02
COUNTS, NUM_TOKENS = (1, 8, 32), 96
BACKENDS = ("cpu_paged", "sdpa")
DECLARATION = PluginDeclaration(name="splitter", provides={"attention.hybrid": "cuts one backend in two"})


class SplitFactory:
    """Builds two instances of one backend as the halves of a hybrid."""

    def __init__(self, factory: AttentionFactory) -> None:
        self.factory = factory
        self.name, self.capabilities = f"split {factory.name}", factory.capabilities

    def build(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> AttentionBackend:
        halves = (self.factory.build(spec, cache, device, dtype) for _ in range(2))
        return HybridAttention(self.name, *halves)


class Splitter:
    """A plugin that selects the split of one backend."""

    def __init__(self, name: str) -> None:
        self.name = name

    @hookimpl
    def select_attention(self, available: dict[str, AttentionFactory]) -> SplitFactory:
        return SplitFactory(available[self.name])


def run(options: Options) -> Result:
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    for backend in BACKENDS:
        engines = {
            "alone": make_engine(options, attention=backend),
            "selected twice": make_engine(options, {"prefill": backend, "decode": backend}),
            "split": make_engine(options, splitter=backend),
        }
        for count in COUNTS if backend == BACKENDS[0] else COUNTS[:2]:
            samples = alternate(make_variants(engines, count), options.rounds(9, 1))
            rounds = list(zip(*samples.values(), strict=True))
            twice, split = (median(each[at] / each[0] for each in rounds) for at in (1, 2))
            what = f"{backend}, {count} concurrent"
            seconds = [f"{median(values):.3f}" for values in samples.values()]
            rows.append((what, *seconds, f"{twice:.3f}x", f"{split:.3f}x"))
            checks.append(Check(f"{what}, selected twice / alone", twice, TARGET, True, "x"))
            raw |= {f"{what}, {name}": values for name, values in samples.items()}
    return Result(
        title=f"one attention backend alone and as a hybrid, demo model, {DTYPE}, {options.threads} threads, seconds",
        columns=("case", "alone", "selected twice", "split", "selected twice / alone", "split / alone"),
        rows=rows,
        checks=checks,
        notes=[
            "Ratios are medians over rounds; the runs of a round follow each other. Native layers are fused only in "
            "steps of one phase."
        ],
        raw=raw,
    )


def make_variants(engines: dict[str, Assembled], count: int) -> dict[str, Callable[[], float]]:
    """Seconds in which each engine serves the same `count` concurrent requests."""
    texts = prompts(engines["alone"].tokenizer, count, PROMPT_LEN)
    requests = [greedy(f"{i}", prompt, NUM_TOKENS) for i, prompt in enumerate(texts)]

    def seconds(engine: Engine) -> float:
        return serve_all(engine, requests).seconds

    return {name: partial(seconds, assembled.engine) for name, assembled in engines.items()}


def make_engine(
    options: Options, settings: dict[str, str] | None = None, *, splitter: str | None = None, attention: str = "auto"
) -> Assembled:
    """`settings`: hybrid_attn's options; `splitter`: the backend to split."""
    plugin_options = {} if settings is None else {"hybrid_attn": settings}
    in_process = {} if splitter is None else {"splitter": InProcessPlugin(Splitter(splitter), DECLARATION)}
    config = demo_config(
        options, attention=attention, plugins=tuple(plugin_options), plugin_options=plugin_options,
        max_num_batched_tokens=256,
    )  # fmt: skip
    return assemble(config, PluginHost.start(config, in_process))
