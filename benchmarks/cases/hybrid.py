"""What it costs to serve prompts and generated tokens by different attention backends.

The same backend on both sides, so that only the way differs: alone; chosen twice through hybrid_attn, which then builds
it once; and split by force, every step of both phases cut in two and joined again, as it is where the sides differ.
Requests arrive one after the other, so that most steps of the first half are mixed.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate
from benchmarks.lib.workload import DTYPE, KV_MEMORY, MODEL, PROMPT_LEN, greedy, prompts, serve_all
from specserve.config import EngineConfig
from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.engine.assembly import assemble
from specserve.hookspecs import hookimpl
from specserve.plugins.host import PluginHost
from specserve_hybrid_attn.attention import HybridAttention

if TYPE_CHECKING:
    import torch

    from specserve.engine.assembly import Assembled
    from specserve.protocols import AttentionBackend, AttentionFactory, AttentionSpec

TARGET = 1.02
COUNTS, NUM_TOKENS = (1, 8, 32), 96
BACKENDS = ("cpu_paged", "sdpa")


class Split:
    """A backend and a second instance of it as two."""

    def __init__(self, factory: AttentionFactory) -> None:
        self.factory = factory
        self.name, self.capabilities = f"split {factory.name}", factory.capabilities

    def build(self, spec: AttentionSpec, cache: Any, device: torch.device, dtype: torch.dtype) -> AttentionBackend:
        halves = (self.factory.build(spec, cache, device, dtype) for _ in range(2))
        return HybridAttention(self.name, *halves)


class Splitter:
    def __init__(self, name: str) -> None:
        self.name = name

    @hookimpl
    def select_attention(self, available: dict[str, AttentionFactory]) -> Split:
        return Split(available[self.name])


def run(options: Options) -> Result:
    rows: list[tuple[str, ...]] = []
    checks: list[Check] = []
    raw: dict[str, list[float]] = {}
    for backend in BACKENDS:
        engines = {
            "alone": engine(options, attention=backend),
            "chosen twice": engine(options, {"prefill": backend, "decode": backend}),
            "split by force": engine(options, splitter=backend),
        }
        tokenizer = engines["alone"].tokenizer
        for count in COUNTS if backend == BACKENDS[0] else COUNTS[:2]:
            requests = [greedy(f"{i}", p, NUM_TOKENS) for i, p in enumerate(prompts(tokenizer, count, PROMPT_LEN))]
            contenders = {
                name: lambda made=made, some=requests: serve_all(made.engine, some).seconds
                for name, made in engines.items()
            }
            taken = alternate(contenders, options.rounds(9, 1))
            rounds = list(zip(*taken.values(), strict=True))
            twice, split = (median(each[at] / each[0] for each in rounds) for at in (1, 2))
            what = f"{backend}, {count} at once"
            middle = [f"{median(values):.3f}" for values in taken.values()]
            rows.append((what, *middle, f"{twice:.3f}x", f"{split:.3f}x"))
            checks.append(Check(f"{what}, hybrid of it with itself / it alone", twice, TARGET, True, "x"))
            raw |= {f"{what}, {name}": values for name, values in taken.items()}
    return Result(
        title=f"one backend alone and as a hybrid, demo model, {DTYPE}, {options.threads} threads, seconds",
        columns=("case", "alone", "chosen twice", "split by force", "chosen twice / alone", "split / alone"),
        rows=rows,
        checks=checks,
        notes=[
            "Ratios are medians over rounds of neighbouring runs. Native layers are fused in steps of one phase only."
        ],
        raw=raw,
    )


def engine(
    options: Options, settings: dict[str, str] | None = None, *, splitter: str | None = None, attention: str = "auto"
) -> Assembled:
    """`settings`: hybrid_attn's options; `splitter`: the backend to cut in two."""
    plugin_options = {} if settings is None else {"hybrid_attn": settings}
    extra = {} if splitter is None else {"splitter": InProcessPlugin(Splitter(splitter), DECLARATION)}
    config = EngineConfig(
        model=MODEL, dtype=DTYPE, threads=options.threads, kv_memory=KV_MEMORY, prefix_cache=False,
        attention=attention, plugins=tuple(plugin_options), plugin_options=plugin_options,
        max_num_batched_tokens=256,
    )  # fmt: skip
    return assemble(config, PluginHost.start(config, extra))


DECLARATION = PluginDeclaration(name="splitter", provides={"attention.hybrid": "cuts one backend in two"})
