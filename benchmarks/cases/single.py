"""One request of the demo model against transformers' `generate`: same prompt, dtype, threads, token count.

Both are timed over the whole call, prompt included, in one process and in turn. Greedy; the end-of-text token
ends neither.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, seconds_of, spread
from benchmarks.lib.workload import DTYPE, MODEL, NUM_TOKENS, PROMPT_LEN, demo_engine, greedy, prompts, serve_all
from specserve.models.locate import locate_model

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.engine.engine import Engine

TARGET = 1.3


def run(options: Options) -> Result:
    assembled = demo_engine(options)
    prompt = prompts(assembled.tokenizer, 1, PROMPT_LEN)[0]
    generate = transformers_generate(prompt)
    request, first = greedy("single", prompt, NUM_TOKENS), greedy("first", prompt, 1)
    engine = assembled.engine
    contenders = {
        "specserve": lambda: NUM_TOKENS / serve_all(engine, [request]).seconds,
        "transformers": lambda: NUM_TOKENS / seconds_of(lambda: generate(NUM_TOKENS)),
        "specserve, first token": lambda: serve_all(engine, [first]).seconds * 1e3,
        "transformers, first token": lambda: seconds_of(lambda: generate(1)) * 1e3,
    }
    taken = alternate(contenders, options.rounds(7, 2))
    middle = medians(taken)
    rows = []
    for name in ("specserve", "transformers"):
        first_ms = middle[f"{name}, first token"]
        step_ms = (NUM_TOKENS / middle[name] * 1e3 - first_ms) / (NUM_TOKENS - 1)
        rows.append((name, f"{middle[name]:.1f}", spread(taken[name]), f"{first_ms:.0f}", f"{step_ms:.2f}"))
    ratio = middle["specserve"] / middle["transformers"]
    return Result(
        title=f"one request, {PROMPT_LEN} prompt tokens, {NUM_TOKENS} new ones, {DTYPE}, {options.threads} threads",
        columns=("who", "tokens/s", "lowest..highest", "first token ms", "ms per later token"),
        rows=rows,
        checks=[Check("specserve / transformers, tokens/s", ratio, TARGET, False, "x")],
        notes=[f"{assembled.description['kernels']} kernels, {assembled.description['attention']} attention."],
        raw=taken,
        details=profile_decode(engine, prompt) if options.profile else "",
    )


def transformers_generate(prompt: tuple[int, ...]) -> Callable[[int], None]:
    """generate(n): n new tokens behind the prompt, greedily."""
    transformers: Any = importlib.import_module("transformers")  # untyped, and not installed for users
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    model = transformers.AutoModelForCausalLM.from_pretrained(locate_model(MODEL), dtype=getattr(torch, DTYPE)).eval()
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)

    @torch.inference_mode()
    def generate(count: int) -> None:
        out = model.generate(ids, attention_mask=mask, do_sample=False, min_new_tokens=count, max_new_tokens=count)
        assert out.shape[1] == ids.shape[1] + count

    return generate


def profile_decode(engine: Engine, prompt: tuple[int, ...]) -> str:
    """torch's own profile of decode steps, as microseconds per step by operator, and the time outside operators."""
    steps = 40
    engine.add(greedy("profiled", prompt, 3 * steps))
    while engine.metrics.num_requests_waiting or not engine.requests["profiled"].num_generated:
        engine.step()
    for _ in range(steps // 2):
        engine.step()
    plain = seconds_of(lambda: [engine.step() for _ in range(steps)]) / steps * 1e6
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(steps):
            engine.step()
    engine.abort("profiled")
    events = sorted(profile.key_averages(), key=lambda event: -event.self_cpu_time_total)
    lines = [f"a step takes {plain:.0f} us without the profiler; with it, per step:", "  own us  calls  operator"]
    lines += [f"{e.self_cpu_time_total / steps:8.1f}  {e.count / steps:5.1f}  {e.key}" for e in events[:20]]
    lines.append(f"{sum(e.self_cpu_time_total for e in events) / steps:8.1f}         all operators")
    return "\n".join(lines)
