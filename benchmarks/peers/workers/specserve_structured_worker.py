"""specserve with the plugin grammar, asked for text with and without a schema; with n-gram drafts, with ngram too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_worker import PLUGINS
from together import Emitted, decode_together
from wire import answer_jobs

from benchmarks.lib.workload import DTYPE, KV_MEMORY
from specserve.config import EngineConfig
from specserve.engine.assembly import assemble
from specserve.plugins.host import PluginHost
from specserve.types import GenerateRequest, SamplingParams, StructuredOutput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from wire import Reply, StructuredJob, StructuredSetup


def load(setup: StructuredSetup) -> Callable[[StructuredJob], Iterator[Reply]]:
    config = EngineConfig(
        model=setup["model"],
        dtype=DTYPE,
        threads=setup["threads"],
        kv_memory=KV_MEMORY,
        prefix_cache=False,
        plugins=("grammar", *PLUGINS[setup["drafts"]]),
        plugin_options={"grammar": setup["grammar"]},
    )
    engine = assemble(config, PluginHost.start(config)).engine

    def step() -> Iterator[Emitted]:
        for output in engine.step():
            yield Emitted(output.request_id, output.tokens, output.finish_reason is not None)

    def answer(job: StructuredJob) -> Iterator[Reply]:
        params = params_of(job)
        request_ids = [str(i) for i in range(len(job["prompts"]))]
        for request_id, prompt in zip(request_ids, job["prompts"], strict=True):
            request = GenerateRequest(request_id=request_id, prompt_token_ids=tuple(prompt), params=params)
            engine.check(request)
            engine.add(request)
        yield from decode_together(step, request_ids)

    return answer


def params_of(job: StructuredJob) -> SamplingParams:
    form = StructuredOutput(kind="json_schema", text=job["schema"]) if job["schema"] else None
    return SamplingParams(
        temperature=job["temperature"], max_tokens=job["num_tokens"], ignore_eos=form is None, structured_output=form
    )


if __name__ == "__main__":
    answer_jobs(load)
