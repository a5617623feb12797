"""vLLM's `LLM` on the CPU with a draft head, asked for one text after the other. Environment variables are set by
`benchmarks.peers.engines`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire import answer_jobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wire import HeadSetup, Job, Reply


def load(setup: HeadSetup) -> Callable[[Job], Iterator[Reply]]:
    # Imported here: vLLM's engine process imports this file again, and must not import vLLM through it.
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=setup["model"],
        dtype="float32",
        max_model_len=setup["max_len"],
        max_num_seqs=1,
        enable_prefix_caching=False,
        enforce_eager=True,
        disable_log_stats=False,
        speculative_config={"method": setup["kind"], "model": setup["head"], "num_speculative_tokens": setup["steps"]},
    )

    def drafts() -> int:
        """Verified so far: one in every step behind a request's first token."""
        return sum(metric.value for metric in llm.get_metrics() if metric.name == "vllm:spec_decode_num_drafts")

    def answer(job: Job) -> Iterator[Reply]:
        params = SamplingParams(temperature=0.0, max_tokens=job["num_tokens"], ignore_eos=True, detokenize=False)
        outputs, steps = [], []
        for prompt in job["prompts"]:
            before = drafts()
            (output,) = llm.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)
            outputs.append(list(output.outputs[0].token_ids))
            steps.append(drafts() - before)
        yield {"outputs": outputs, "steps": steps}

    return answer


if __name__ == "__main__":
    answer_jobs(load)
