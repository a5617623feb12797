"""On a CUDA device: the demo model and an 8B Llama of random weights, plain, with drafts, and under adapters.

Decode steps only: prompts are computed before the clock starts. `memory` is the bytes of weights, keys and values that
a step must read, over the time of a step and the speed at which this card copies. Drafts are the request's own tokens
from an earlier run, eight a step and all right: what verification could gain at most. transformers continues the same
prompts, greedily, in one batch; its time includes them.
"""

from __future__ import annotations

import gc
import importlib
import time
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch

from benchmarks.cases.tiles import copy_speed
from benchmarks.lib.forwards import kv_bytes, weight_bytes
from benchmarks.lib.random_adapter import write_random_adapter
from benchmarks.lib.random_model import LLAMA_8B, random_weights, write_config
from benchmarks.lib.report import Options, Result
from specserve.config import EngineConfig
from specserve.engine.assembly import assemble
from specserve.errors import ConfigError
from specserve.models.decoder import DecoderModel
from specserve.plugins.discovery import discover
from specserve.plugins.host import PluginHost
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import GenerateRequest, SamplingParams
from specserve_demo import MODEL_DIR
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import drafter_plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from specserve.engine.engine import Engine

COUNTS = (1, 8, 32, 128)
PROMPT_LEN, NUM_TOKENS, DRAFT_LEN, RANK = 256, 64, 8, 16
DEVICE = "cuda"
CONFIG_8B: dict[str, Any] = LLAMA_8B


class Model(NamedTuple):
    """`weights()` holds while it is loaded."""

    name: str
    path: Path
    weights: Callable[[], AbstractContextManager[None]]


class Decoded(NamedTuple):
    """Output tokens by request, and the decode steps' time and number."""

    tokens: dict[str, list[int]]
    seconds: float
    num_steps: int
    num_tokens: int

    @property
    def rate(self) -> float:
        return self.num_tokens / self.seconds


def run(options: Options) -> Result:
    if not torch.cuda.is_available():
        raise ConfigError("benchmark gpu: torch sees no CUDA device here. Run it on a machine that has one.")
    speed = copy_speed()
    rows: list[tuple[str, ...]] = []
    raw: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        models = (
            Model("demo", MODEL_DIR, nullcontext),
            Model("8B", write_config(Path(folder) / "8b", CONFIG_8B), random_weights),
        )
        for model in models:
            for count in COUNTS[: 2 if options.quick else None]:
                for name, cells, samples in measure(model, count, speed, Path(folder)):
                    rows.append((f"{model.name}, {count}", name, *cells))
                    raw[f"{model.name} {count} {name}"] = samples
                    print("  ".join(rows[-1]), flush=True)
    return Result(
        title=f"{torch.cuda.get_device_name()}, bfloat16; a copy reaches {speed / 1e12:.2f} TB/s",
        columns=("model, requests", "what", "tokens/s", "ms/step", "memory", "against plain"),
        rows=rows,
        checks=[],
        notes=[f"Prompts of {PROMPT_LEN} tokens, {NUM_TOKENS} tokens each, prefix cache off."],
        raw=raw,
    )


def measure(model: Model, count: int, speed: float, folder: Path) -> list[tuple[str, tuple[str, ...], list[float]]]:
    """For every variant: its name, its cells and its samples."""
    requests = requests_for(count)
    plain_engine = engine_of(model, count)
    plain = decoded(plain_engine, requests)
    target = plain_engine.runner.model
    context = count * (PROMPT_LEN + NUM_TOKENS // 2)
    floor = (weight_bytes(target) + kv_bytes(target, context)) / speed
    assert isinstance(target, DecoderModel), "one of the engine's own families"
    config = target.config
    del plain_engine
    release()
    found = {"plain": plain}
    drafts = {"drafter": drafter_plugin(lambda: OracleDrafter(plain.tokens, DRAFT_LEN), FixedWidthPlanner(DRAFT_LEN))}
    found["drafts"] = decoded(engine_of(model, count, extra=drafts), requests)
    assert found["drafts"].tokens == plain.tokens, "drafts changed a token"
    release()
    if has_plugin("lora"):
        adapter = write_random_adapter(folder / f"adapter-{model.name}", RANK, 0, model=model.path)
        engine = engine_of(model, count, plugins=("lora",), plugin_options={"lora": {"adapters": {"a": str(adapter)}}})
        found["lora"] = decoded(engine, under_adapter(engine, requests))
        del engine
        release()
    lines: list[tuple[str, tuple[str, ...], list[float]]] = []
    for name, each in found.items():
        step = each.seconds / each.num_steps
        cells = f"{each.rate:.0f}", f"{step * 1e3:.2f}", f"{floor / step:.0%}", f"{each.rate / plain.rate:.2f}x"
        lines.append((name, cells, [each.seconds, each.num_steps, each.num_tokens]))
    seconds = transformers_seconds(model, config.vocab_size, count)
    rate = count * NUM_TOKENS / seconds
    lines.append(("transformers", (f"{rate:.0f}", "", "", f"{rate / plain.rate:.2f}x"), [seconds]))
    return lines


def requests_for(count: int) -> list[GenerateRequest]:
    params = SamplingParams(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    return [GenerateRequest(request_id=str(i), prompt_token_ids=prompt_of(i), params=params) for i in range(count)]


def prompt_of(i: int) -> tuple[int, ...]:
    return tuple((37 * i + 11 * j) % 300 for j in range(PROMPT_LEN))


def engine_of(model: Model, count: int, *, extra: Any = None, **options: Any) -> Engine:
    names = (*options.pop("plugins", ()), *(extra or {}))
    hybrid = ("hybrid_attn",) if has_plugin("hybrid_attn") else ()
    config = EngineConfig(
        model=str(model.path), device="cuda", dtype="bfloat16", max_num_seqs=max(8, count), prefix_cache=False,
        plugins=("cuda", "graphs", *hybrid, *names), max_num_batched_tokens=2048, default_plugins=False, **options,
    )  # fmt: skip
    with model.weights():
        return assemble(config, PluginHost.start(config, extra=extra or {})).engine


def has_plugin(name: str) -> bool:
    return name in discover()


def under_adapter(engine: Engine, requests: Sequence[GenerateRequest]) -> list[GenerateRequest]:
    (store,) = [o.store for o in engine.parts.observers if hasattr(o, "store")]
    return [msgspec.structs.replace(request, adapter=store.pin("a").id) for request in requests]


def decoded(engine: Engine, requests: Sequence[GenerateRequest]) -> Decoded:
    """Twice: the first run compiles."""
    for _ in range(2):
        for request in requests:
            engine.check(request)
            engine.add(request)
        tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
        while not all(tokens.values()):
            collect(tokens, engine)
        torch.cuda.synchronize()
        before, began, num_steps = sum(map(len, tokens.values())), time.perf_counter(), 0
        while engine.has_work:
            collect(tokens, engine)
            num_steps += 1
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
    return Decoded(tokens, seconds, num_steps, sum(map(len, tokens.values())) - before)


def collect(tokens: dict[str, list[int]], engine: Engine) -> None:
    for output in engine.step():
        tokens[output.request_id] += output.tokens


def transformers_seconds(model: Model, vocab_size: int, count: int) -> float:
    transformers = importlib.import_module("transformers")
    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.from_pretrained(model.path)
    ids = torch.tensor([prompt_of(i) for i in range(count)], device="cuda")
    with torch.device(DEVICE):  # made there: on the host it would take minutes
        theirs = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    with torch.inference_mode():
        for _ in range(2):
            torch.cuda.synchronize()
            began = time.perf_counter()
            theirs.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=NUM_TOKENS,
                max_new_tokens=NUM_TOKENS,
            )  # fmt: skip
            torch.cuda.synchronize()
            seconds = time.perf_counter() - began
    del theirs
    release()
    return seconds


def release() -> None:
    """What the last engine held."""
    gc.collect()
    torch.cuda.empty_cache()
