"""Hugging Face transformers as it is installed, one request after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from wire import run_worker

from benchmarks.lib.transformers_baseline import generate, transformers_model

if TYPE_CHECKING:
    from wire import EngineSetup, Job, Serve


def load(setup: EngineSetup) -> Serve:
    torch.set_num_threads(setup["threads"])
    model = transformers_model(setup["model"])

    def serve(job: Job) -> int:
        for prompt in job["prompts"]:
            generate(model, tuple(prompt), job["num_tokens"])
        num_tokens: int = len(job["prompts"]) * job["num_tokens"]
        return num_tokens

    return serve


if __name__ == "__main__":
    run_worker(load)
