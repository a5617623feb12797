"""The plugin transformers on a real model: its text, and that of the engine's own family."""

from __future__ import annotations

import pytest

from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import toy_request

BY_TRANSFORMERS = {"plugins": ("cpu", "transformers"), "plugin_options": {"transformers": {"architectures": "all"}}}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_text_is_that_of_the_engines_own_family(smollm2, prompts, dtype):
    """In bfloat16, transformers rounds the rotation, so that only the beginning of a text must be the same."""
    names = sorted(prompts)[:3]
    requests = [toy_request(name, prompts[name], max_tokens=24) for name in names]
    options = {"dtype": dtype, "kv_memory": "256M"}
    own = run(smollm2, requests, plugins=("cpu",), **options).tokens()
    theirs = run(smollm2, requests, **BY_TRANSFORMERS, **options).tokens()
    length = 24 if dtype == "float32" else 3
    assert {name: theirs[name][:length] for name in names} == {name: own[name][:length] for name in names}


def test_drafts_from_the_text_before_change_nothing(smollm2, prompts):
    requests = [toy_request(name, prompt, max_tokens=32) for name, prompt in sorted(prompts.items())[:3]]
    options = {**BY_TRANSFORMERS, "dtype": "bfloat16", "kv_memory": "256M"}
    plain = run(smollm2, requests, **options)
    options["plugins"] = (*options["plugins"], "ngram")
    assert run(smollm2, requests, **options).decided() == plain.decided()
