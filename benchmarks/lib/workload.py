"""The demo model's engine and its requests, the same in every case that runs a real model.

Prompts are the source of the Python standard library, on which the demo model was trained. The prefix cache is off:
rounds repeat prompts, and a cache hit would skip the work that is timed.
"""

from __future__ import annotations

import runpy
import sysconfig
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from specserve.config import EngineConfig
from specserve.engine.assembly import Assembled, assemble
from specserve.plugins.host import PluginHost
from specserve.types import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from benchmarks.lib.report import Options
    from specserve.engine.engine import Engine
    from specserve.protocols import Tokenizer
    from specserve.types import RequestOutput

MODEL, DTYPE, KV_MEMORY = "demo", "bfloat16", "512M"
PROMPT_LEN, NUM_TOKENS, MANY = 600, 200, 32
ROOT = Path(__file__).parents[2]
SERVE_FLAGS = ("--dtype", DTYPE, "--kv-memory", KV_MEMORY, "--no-prefix-cache")
"""`specserve serve` with these flags runs what `demo_engine` runs."""


def demo_config(options: Options, **overrides: Any) -> EngineConfig:
    """`overrides` are fields of EngineConfig."""
    config = EngineConfig(
        model=MODEL, dtype=DTYPE, threads=options.threads, kv_memory=KV_MEMORY, prefix_cache=False
    )  # fmt: skip
    return msgspec.structs.replace(config, **overrides)


def demo_engine(options: Options, **overrides: Any) -> Assembled:
    """The engine with its default plugins; `overrides` are fields of EngineConfig."""
    config = demo_config(options, **overrides)
    return assemble(config, PluginHost.start(config))


def prompts(tokenizer: Tokenizer, count: int, length: int) -> list[tuple[int, ...]]:
    """`count` prompts of `length` tokens, each from another place in the standard library."""
    ids: list[int] = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        ids += tokenizer.encode(path.read_text(encoding="utf-8"))
        if len(ids) >= count * length:
            return [tuple(ids[i * length : (i + 1) * length]) for i in range(count)]
    raise ValueError(f"the standard library has only {len(ids)} tokens here; {count * length} are needed.")


def held_out_prompts(tokenizer: Tokenizer, count: int, length: int) -> list[tuple[int, ...]]:
    """`count` prompts of `length` tokens, of the files that neither the demo model nor its heads were trained on."""
    corpus = runpy.run_path(str(ROOT / "demo" / "corpus.py"))["read_corpus"]()
    return spread_out([token for text in corpus.held_out for token in tokenizer.encode(text)], count, length)


def docs_prompts(tokenizer: Tokenizer, count: int, length: int) -> list[tuple[int, ...]]:
    """`count` prompts of `length` tokens, of the pages in docs/: prose, of which the demo model has read none."""
    pages = sorted((ROOT / "docs").glob("*.md"))
    return spread_out([token for page in pages for token in tokenizer.encode(page.read_text("utf-8"))], count, length)


def spread_out(ids: list[int], count: int, length: int) -> list[tuple[int, ...]]:
    """Pieces that begin equally far from each other."""
    step = len(ids) // count
    if step < length:
        raise ValueError(f"the texts have {len(ids)} tokens; {count * length} are needed.")
    return [tuple(ids[i * step : i * step + length]) for i in range(count)]


def edit_prompt(tokenizer: Tokenizer, file: tuple[int, ...]) -> tuple[int, ...]:
    """A file, and the first fifth of a copy with one name changed: the rest of the file is what continues it."""
    copy = tokenizer.decode(list(file)).replace("self", "this")
    return (*file, *tokenizer.encode("\n\n# The same with another name:\n"), *tokenizer.encode(copy)[: len(file) // 5])


def greedy(request_id: str, prompt: tuple[int, ...], num_tokens: int) -> GenerateRequest:
    params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)
    return GenerateRequest(request_id=request_id, prompt_token_ids=prompt, params=params)


def seeded(
    request_id: str, prompt: tuple[int, ...], temperature: float, seed: int, num_tokens: int = NUM_TOKENS
) -> GenerateRequest:
    """A request whose output is the same in every engine."""
    params = SamplingParams(temperature=temperature, max_tokens=num_tokens, ignore_eos=True, seed=seed)
    return GenerateRequest(request_id=request_id, prompt_token_ids=prompt, params=params)


class Served(NamedTuple):
    """From the first request to the last token."""

    seconds: float
    num_tokens: int

    @property
    def throughput(self) -> float:
        return self.num_tokens / self.seconds


def serve_all(engine: Engine, requests: list[GenerateRequest]) -> Served:
    """Run all requests concurrently to their end, in this thread."""
    num_tokens = 0

    def count(output: RequestOutput) -> None:
        nonlocal num_tokens
        num_tokens += len(output.tokens)

    began = time.perf_counter()
    engine.run(requests, count)
    seconds = time.perf_counter() - began
    assert num_tokens == sum(request.params.max_tokens for request in requests)
    return Served(seconds, num_tokens)
