"""vLLM's `LLM` on the CPU; with drafts, its own n-gram speculation or the head. Environment variables
are set by `benchmarks.peers.engines`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from wire import run_worker

if TYPE_CHECKING:
    from wire import EngineSetup, Job, Serve

NGRAM = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
EAGLE3_TOKENS = 3
"""A step. It has no width of its own choice for EAGLE-3."""


def load(setup: EngineSetup) -> Serve:
    # Imported here: vLLM's engine process imports this file again, and must not import vLLM through it.
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=setup["model"],
        dtype="bfloat16",
        max_model_len=setup["max_len"],
        max_num_seqs=setup["max_seqs"],
        enable_prefix_caching=False,
        speculative_config=speculation(setup),
    )

    def serve(job: Job) -> int:
        # No seed: seeded sampling crashes its CPU worker. No detokenization: specserve's engine does none either.
        params = SamplingParams(
            temperature=job["temperature"], max_tokens=job["num_tokens"], ignore_eos=True, detokenize=False
        )
        prompts = [{"prompt_token_ids": prompt} for prompt in job["prompts"]]
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return serve


def speculation(setup: EngineSetup) -> dict[str, Any] | None:
    head = {"method": "eagle3", "model": setup["eagle"].get("model"), "num_speculative_tokens": EAGLE3_TOKENS}
    return {"plain": None, "ngram": NGRAM, "eagle3": head}[setup["drafts"]]


if __name__ == "__main__":
    run_worker(load)
