"""OpenVINO GenAI's continuous batching on the CPU; with n-gram drafts, its prompt lookup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy
import openvino
import openvino_genai
from wire import run_worker

if TYPE_CHECKING:
    from wire import EngineSetup, Job, Serve

KV_CACHE_GB = 2


def load(setup: EngineSetup) -> Serve:
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = KV_CACHE_GB
    scheduler.max_num_seqs = setup["max_seqs"]
    scheduler.enable_prefix_caching = False
    properties = {
        "INFERENCE_NUM_THREADS": setup["threads"],
        "INFERENCE_PRECISION_HINT": "bf16",
        **({"prompt_lookup": True} if setup["drafts"] == "ngram" else {}),
    }
    pipeline = openvino_genai.ContinuousBatchingPipeline(setup["model"], scheduler, "CPU", properties)

    def serve(job: Job) -> int:
        config = openvino_genai.GenerationConfig(max_new_tokens=job["num_tokens"], ignore_eos=True)
        config.do_sample = job["temperature"] > 0
        if config.do_sample:
            config.temperature = job["temperature"]
        if setup["drafts"] == "ngram":
            config.num_assistant_tokens, config.max_ngram_size = 5, 3
        prompts = [openvino.Tensor(numpy.array([prompt], dtype=numpy.int64)) for prompt in job["prompts"]]
        results = pipeline.generate(prompts, [config] * len(prompts))
        return sum(len(result.m_generation_ids[0]) for result in results)

    return serve


if __name__ == "__main__":
    run_worker(load)
