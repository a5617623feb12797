"""specserve as it is installed, default plugins included; with drafts, the plugin that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wire import run_worker

from benchmarks.lib.workload import DTYPE, KV_MEMORY, serve_all
from specserve.config import EngineConfig
from specserve.engine.assembly import assemble
from specserve.plugins.host import PluginHost
from specserve.types import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from wire import EngineSetup, Job, Serve

PLUGINS = {"plain": (), "ngram": ("ngram",), "eagle3": ("eagle",)}


def load(setup: EngineSetup) -> Serve:
    config = EngineConfig(
        model=setup["model"],
        dtype=DTYPE,
        threads=setup["threads"],
        kv_memory=KV_MEMORY,
        prefix_cache=False,
        plugins=PLUGINS[setup["drafts"]],
        plugin_options={
            "cpu": {"weights": setup["weights"], "activations": setup["activations"]},
            **({"eagle": setup["eagle"]} if setup["eagle"] else {}),
        },
    )
    engine = assemble(config, PluginHost.start(config)).engine

    def serve(job: Job) -> int:
        params = SamplingParams(temperature=job["temperature"], max_tokens=job["num_tokens"], ignore_eos=True)
        requests = [
            GenerateRequest(request_id=f"request-{i}", prompt_token_ids=tuple(prompt), params=params)
            for i, prompt in enumerate(job["prompts"])
        ]
        return serve_all(engine, requests).num_tokens

    return serve


if __name__ == "__main__":
    run_worker(load)
