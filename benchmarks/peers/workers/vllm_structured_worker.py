"""vLLM's engine, asked for text with and without a schema; with n-gram drafts, by its own speculation. Environment
variables are set by `benchmarks.peers.engines`."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import psutil
from together import Emitted, decode_together
from vllm_worker import speculation
from wire import answer_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wire import Reply, StructuredJob, StructuredSetup

XGRAMMAR = {"backend": "xgrammar", "disable_any_whitespace": True}
"""What it selects by itself for the schema. With any whitespace, the demo model writes blanks to the last token."""


def load(setup: StructuredSetup) -> Callable[[StructuredJob], Iterator[Reply]]:
    # Imported here: vLLM's engine process imports this file again, and must not import vLLM through it.
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    engine = LLM(
        model=setup["model"],
        dtype="bfloat16",
        max_model_len=setup["max_len"],
        max_num_seqs=setup["max_seqs"],
        enable_prefix_caching=False,
        speculative_config=speculation(setup),
        structured_outputs_config=XGRAMMAR,
    ).llm_engine

    def step() -> Iterator[Emitted]:
        for output in engine.step():
            yield Emitted(output.request_id, output.outputs[0].token_ids, output.finished)

    def params_of(job: StructuredJob) -> SamplingParams:
        form = StructuredOutputsParams(json=job["schema"]) if job["schema"] else None
        # No seed and no detokenization, as in vllm_worker.
        return SamplingParams(
            temperature=job["temperature"],
            max_tokens=job["num_tokens"],
            ignore_eos=form is None,
            structured_outputs=form,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )

    def answer(job: StructuredJob) -> Iterator[Reply]:
        request_ids = [str(i) for i in range(len(job["prompts"]))]
        for request_id, prompt in zip(request_ids, job["prompts"], strict=True):
            engine.add_request(request_id, {"prompt_token_ids": prompt}, params_of(job))
        yield from stopped_between(decode_together(step, request_ids))

    return answer


def stopped_between(slices: Iterator[Reply]) -> Iterator[Reply]:
    """Its own processes would decode on until the benchmark stops them, and the next slice would find their tokens."""
    children = [child.pid for child in psutil.Process().children(recursive=True)]
    for reply in slices:
        send_all(children, signal.SIGSTOP)
        yield reply
        send_all(children, signal.SIGCONT)


def send_all(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


if __name__ == "__main__":
    answer_jobs(load)
