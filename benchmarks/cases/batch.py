"""Output throughput of 32 concurrent requests against one: what continuous batching gains.

Timed from the first request to the last token, prefill included, each request with a prompt of its own.
"""

from __future__ import annotations

from benchmarks.lib.report import Check, Options, Result
from benchmarks.lib.timing import alternate, medians, spread
from benchmarks.lib.workload import DTYPE, MANY, NUM_TOKENS, PROMPT_LEN, demo_engine, greedy, prompts, serve_all

TARGET = 3.0
COUNTS = (1, 8, MANY)


def run(options: Options) -> Result:
    assembled = demo_engine(options)
    engine = assembled.engine
    requests = [
        greedy(f"request-{i}", prompt, NUM_TOKENS)
        for i, prompt in enumerate(prompts(assembled.tokenizer, MANY, PROMPT_LEN))
    ]
    variants = {str(n): lambda n=n: serve_all(engine, requests[:n]).throughput for n in COUNTS}
    samples = alternate(variants, options.rounds(3, 1), warmup=0 if options.quick else 1)
    median = medians(samples)
    rows = [(n, f"{rate:.0f}", spread(samples[n]), f"{rate / median['1']:.2f}x") for n, rate in median.items()]
    return Result(
        title=f"{PROMPT_LEN} prompt tokens, {NUM_TOKENS} output tokens each, {DTYPE}, {options.threads} threads",
        columns=("concurrent requests", "tokens/s", "min..max", "against one"),
        rows=rows,
        checks=[Check(f"{MANY} concurrent / one, tokens/s", median[str(MANY)] / median["1"], TARGET, False, "x")],
        notes=[f"{assembled.description['kernels']} kernels, {assembled.description['attention']} attention."],
        raw=samples,
    )
