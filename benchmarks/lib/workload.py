"""The demo model's engine and its requests, the same for every benchmark that runs a real model.

Prompts are the Python standard library's own source, which is what the demo model was trained on. The prefix
cache is off: rounds repeat prompts, and a hit would time nothing.
"""

from __future__ import annotations

import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specserve.config import EngineConfig
from specserve.engine.assembly import Assembled, assemble
from specserve.plugins.host import PluginHost
from specserve.types import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from benchmarks.lib.report import Options
    from specserve.engine.engine import Engine
    from specserve.types import RequestOutput

MODEL, DTYPE, KV_MEMORY = "demo", "bfloat16", "512M"
PROMPT_LEN, NUM_TOKENS, MANY = 600, 200, 32
SERVE_FLAGS = ("--dtype", DTYPE, "--kv-memory", KV_MEMORY, "--no-prefix-cache")
"""`specserve serve` with these flags runs what `demo_engine` runs."""


def demo_engine(options: Options, **overrides: Any) -> Assembled:
    """The product as it is installed, default plugins included; `overrides` are fields of EngineConfig."""
    fields: dict[str, Any] = {"kv_memory": KV_MEMORY, "prefix_cache": False, **overrides}
    config = EngineConfig(model=MODEL, dtype=DTYPE, threads=options.threads, **fields)
    return assemble(config, PluginHost.start(config))


def prompts(tokenizer: Any, count: int, length: int) -> list[tuple[int, ...]]:
    """`count` prompts of `length` tokens, each from another place of the standard library."""
    ids: list[int] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        ids += tokenizer.encode(path.read_text(encoding="utf-8"))
        if len(ids) >= count * length:
            return [tuple(ids[i * length : (i + 1) * length]) for i in range(count)]
    raise ValueError(f"the standard library has only {len(ids)} tokens here; {count * length} are needed.")


def greedy(request_id: str, prompt: tuple[int, ...], num_tokens: int) -> GenerateRequest:
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    return GenerateRequest(request_id=request_id, prompt_token_ids=prompt, params=params)


class Served(NamedTuple):
    """What a run of requests took, from the first request to the last token."""

    seconds: float
    num_tokens: int

    @property
    def rate(self) -> float:
        return self.num_tokens / self.seconds


def serve_all(engine: Engine, requests: list[GenerateRequest]) -> Served:
    """Run them together to their end in this thread."""
    num_tokens = 0

    def count(output: RequestOutput) -> None:
        nonlocal num_tokens
        num_tokens += len(output.tokens)

    began = time.perf_counter()
    engine.run(requests, count)
    seconds = time.perf_counter() - began
    assert num_tokens == sum(request.params.max_tokens for request in requests)
    return Served(seconds, num_tokens)
