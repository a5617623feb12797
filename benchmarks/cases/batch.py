"""Throughput of 32 requests at once against one: what continuous batching gains.

Both are timed from the first request to the last token, prompts included, each request with a prompt of its own.
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
    contenders = {str(n): lambda n=n: serve_all(engine, requests[:n]).rate for n in COUNTS}
    taken = alternate(contenders, options.rounds(3, 1), warmup=0 if options.quick else 1)
    middle = medians(taken)
    rows = [(name, f"{rate:.0f}", spread(taken[name]), f"{rate / middle['1']:.2f}x") for name, rate in middle.items()]
    return Result(
        title=f"{PROMPT_LEN} prompt tokens, {NUM_TOKENS} new ones each, {DTYPE}, {options.threads} threads",
        columns=("requests at once", "tokens/s", "lowest..highest", "against one"),
        rows=rows,
        checks=[Check(f"{MANY} at once / one, tokens/s", middle[str(MANY)] / middle["1"], TARGET, False, "x")],
        notes=[f"{assembled.description['kernels']} kernels, {assembled.description['attention']} attention."],
        raw=taken,
    )
