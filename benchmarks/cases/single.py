"""One request of the demo model against transformers' `generate`: same prompt, dtype, threads, number of tokens.

Both are timed over the whole call, prefill included, in one process, alternating. Greedy; end of text is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, seconds_of, spread
from benchmarks.lib.transformers_baseline import transformers_generate
from benchmarks.lib.workload import DTYPE, NUM_TOKENS, PROMPT_LEN, demo_engine, greedy, prompts, serve_all

if TYPE_CHECKING:
    from specserve.engine.engine import Engine

TARGET = 1.3


def run(options: Options) -> Result:
    assembled = demo_engine(options)
    prompt = prompts(assembled.tokenizer, 1, PROMPT_LEN)[0]
    generate = transformers_generate(prompt)
    request, first = greedy("single", prompt, NUM_TOKENS), greedy("first", prompt, 1)
    engine = assembled.engine
    variants = {
        "specserve": lambda: serve_all(engine, [request]).throughput,
        "transformers": lambda: NUM_TOKENS / seconds_of(lambda: generate(NUM_TOKENS)),
        "specserve, TTFT": lambda: serve_all(engine, [first]).seconds * 1e3,
        "transformers, TTFT": lambda: seconds_of(lambda: generate(1)) * 1e3,
    }
    samples = alternate(variants, options.rounds(7, 2))
    median = medians(samples)
    rows = []
    for name in ("specserve", "transformers"):
        ttft = median[f"{name}, TTFT"]
        tpot = (NUM_TOKENS / median[name] * 1e3 - ttft) / (NUM_TOKENS - 1)
        rows.append((name, f"{median[name]:.1f}", spread(samples[name]), f"{ttft:.0f}", f"{tpot:.2f}"))
    ratio = median["specserve"] / median["transformers"]
    return Result(
        title=f"one request, {PROMPT_LEN} prompt + {NUM_TOKENS} output tokens, {DTYPE}, {options.threads} threads",
        columns=("engine", "tokens/s", "min..max", "TTFT ms", "TPOT ms"),
        rows=rows,
        checks=[Check("specserve / transformers, tokens/s", ratio, TARGET, False, "x")],
        notes=[f"{assembled.description['kernels']} kernels, {assembled.description['attention']} attention."],
        raw=samples,
        details=profile_decode(engine, prompt) if options.profile else "",
    )


def profile_decode(engine: Engine, prompt: tuple[int, ...]) -> str:
    """torch's profile of decode steps: microseconds per step by operator."""
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
