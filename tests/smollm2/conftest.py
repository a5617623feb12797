"""A model that nobody here trained: SmolLM2-135M-Instruct, and its prompts as token ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_prompts import PROMPTS

from specserve.text.tokenizer import HfTokenizer

DIRECTORY = Path(__file__).parents[2] / "build" / "smollm2"


@pytest.fixture(scope="session")
def smollm2() -> Path:
    assert (DIRECTORY / "config.json").exists(), "`make build/smollm2/config.json` makes the model that is tested"
    return DIRECTORY


@pytest.fixture(scope="session")
def prompts(smollm2: Path) -> dict[str, list[int]]:
    """Token ids by the prompt's name."""
    tokenizer = HfTokenizer.from_dir(smollm2)
    return {prompt.name: tokenizer.encode(prompt.text) for prompt in PROMPTS}
