"""vLLM's `LLM` on the CPU; with `lookup`, its n-gram speculation. Its options come as arguments and environment
variables (`benchmarks.peers.engines`): here is only what an engine is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire import work

if TYPE_CHECKING:
    from wire import Job, Run, Setup

NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}


def load(setup: Setup) -> Run:
    # Its engine lives in a child that imports this file again and must not import vLLM a second time by it.
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=setup["model"],
        dtype="bfloat16",
        max_model_len=setup["max_len"],
        max_num_seqs=setup["max_seqs"],
        enable_prefix_caching=False,
        speculative_config=NGRAM if setup["lookup"] else None,
    )

    def serve(job: Job) -> int:
        # Without a seed: a seeded sampled batch crashes its CPU worker. Nor does specserve's engine make text.
        params = SamplingParams(
            temperature=job["temperature"], max_tokens=job["num_tokens"], ignore_eos=True, detokenize=False
        )
        prompts = [{"prompt_token_ids": prompt} for prompt in job["prompts"]]
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return serve


if __name__ == "__main__":
    work(load)
