"""A fresh process in which several engines start at once, with all plugins: `python -m cold_start.first_engines
MODEL_DIR`. Extensions are loaded, kernels chosen and statics made by threads that meet there. Each engine answers one
request; the answers are equal.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
from typing import TYPE_CHECKING

from cold_start.servers import KV_ENDPOINT, PLUGINS
from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.types import GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from collections.abc import Sequence

ENGINES = 4
PARAMS = SamplingParams(max_tokens=24, temperature=0.8, seed=5)


async def answer(model: str) -> Sequence[int]:
    config = EngineConfig(
        model=model,
        plugins=PLUGINS,
        plugin_options={"eagle": {"model": model}, "kv_events": {"endpoint": KV_ENDPOINT}},
        kv_memory="16M",
        max_model_len=256,
        threads=2,
    )
    engine = await AsyncEngine.start(config)
    try:
        request = GenerateRequest(request_id="first", prompt_token_ids=(1, 2, 3), params=PARAMS)
        return [token async for output in engine.submit(request) for token in output.tokens]
    finally:
        await engine.stop()


async def main(model: str) -> None:
    faulthandler.enable()
    sys.setswitchinterval(1e-6)
    answers = await asyncio.gather(*(answer(model) for _ in range(ENGINES)))
    assert len(answers[0]) == PARAMS.max_tokens
    assert all(one == answers[0] for one in answers), answers


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
