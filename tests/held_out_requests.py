"""Requests to continue files that neither the demo model nor its draft models were trained on."""

from __future__ import annotations

import sysconfig
import zlib
from functools import cache
from pathlib import Path

from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer
from specserve.types import GenerateRequest, SamplingParams

NUM_PROMPTS, PROMPT_LEN = 6, 300


@cache
def held_out_prompts() -> list[tuple[int, ...]]:
    """From files of the standard library that `demo/corpus.py` holds out, one each."""
    tokenizer = HfTokenizer.from_dir(locate_model("demo"))
    found = list[tuple[int, ...]]()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        if zlib.crc32(path.name.encode()) % 20 == 0:
            ids = tokenizer.encode(path.read_text(encoding="utf-8"))
            if len(ids) > PROMPT_LEN:
                found.append(tuple(ids[:PROMPT_LEN]))
    assert len(found) >= 3
    return found[:NUM_PROMPTS]


def requests(temperature: float) -> list[GenerateRequest]:
    """100 tokens behind each of these prompts."""
    params = [
        SamplingParams(max_tokens=100, temperature=temperature, seed=i, ignore_eos=True)
        for i in range(len(held_out_prompts()))
    ]
    return [
        GenerateRequest(request_id=str(i), prompt_token_ids=prompt, params=each)
        for i, (prompt, each) in enumerate(zip(held_out_prompts(), params, strict=True))
    ]
