"""The demo model's own adapters: PEFT's logits, other text than the base's, and the same text with drafts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import torch

from specserve.config import EngineConfig
from specserve.engine.assembly import assemble
from specserve.models.locate import locate_model
from specserve.plugins.host import PluginHost
from specserve_demo import ADAPTERS_DIR
from specserve_workbench.testing.engines import run_requests, verify_everything
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from specserve.engine.assembly import Assembled
    from specserve.types import GenerateRequest

NAMES = ("docstrings", "tests")
PROMPTS = {
    "docstrings": 'class Pool:\n    """A pool of connections.\n\n    Connections are',
    "tests": "def test_close(self):\n        reader = self.make_reader()\n        self.assert",
}


def engine(*plugins: str, dtype: str) -> tuple[Assembled, dict[str, str]]:
    """An engine with both adapters, and their ids."""
    config = EngineConfig(
        model="demo", dtype=dtype, threads=2, kv_memory="128M", plugins=("lora", *plugins),
        plugin_options={"lora": {"adapters": {name: str(ADAPTERS_DIR / name) for name in NAMES}}},
    )  # fmt: skip
    host = PluginHost.start(config)
    assembled = assemble(config, host)
    return assembled, {name: host.collect("resolve_model", name=name)[0][1].adapter for name in NAMES}


def requests(assembled: Assembled, ids: dict[str, str]) -> list[GenerateRequest]:
    """Every prompt under every adapter and under none, greedy and sampled."""
    made = []
    for about, text in PROMPTS.items():
        prompt = assembled.tokenizer.encode(text)
        for name, id in {"base": "", **ids}.items():
            for temperature in (0.0, 0.8):
                one = toy_request(
                    f"{about} {name} {temperature}", prompt, max_tokens=48, ignore_eos=True, temperature=temperature,
                    seed=3, logprobs=2,
                )  # fmt: skip
                made.append(msgspec.structs.replace(one, adapter=id))
    return made


def test_each_adapter_says_something_else_and_drafts_change_nothing() -> None:
    plain, ids = engine(dtype="bfloat16")
    asked = requests(plain, ids)
    expected = run_requests(plain.engine, asked).decided()
    drafting, _ = engine("ngram", dtype="bfloat16")
    verify_everything(drafting.engine)
    for _ in range(2):  # the second time the index has seen every answer
        assert run_requests(drafting.engine, asked).decided() == expected
    assert drafting.engine.metrics.num_accepted_tokens > 300
    greedy = [expected[f"{about} {name} 0.0"] for about in PROMPTS for name in ("base", *NAMES)]
    assert len({tuple(tokens) for tokens, *_ in greedy}) >= 5
    assert len({logprobs[0].logprob for _, logprobs, *_ in greedy}) == 6


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", NAMES)
def test_the_logprobs_are_those_of_peft(name: str) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ours, ids = engine(dtype="float32")
    prompt = ours.tokenizer.encode(PROMPTS[name])
    request = toy_request("a", prompt, max_tokens=1, prompt_logprobs=0)
    got = run_requests(ours.engine, [msgspec.structs.replace(request, adapter=ids[name])]).outputs["a"]
    base: Any = AutoModelForCausalLM.from_pretrained(locate_model("demo"), dtype=torch.float32)
    adapted = PeftModel.from_pretrained(base, str(ADAPTERS_DIR / name)).merge_and_unload()
    with torch.inference_mode():
        logprobs = adapted(torch.tensor([prompt])).logits[0].log_softmax(-1)
    theirs = [logprobs[i, token].item() for i, token in enumerate(prompt[1:])]
    assert [each.logprob for each in got.prompt_logprobs] == pytest.approx(theirs, abs=1e-3)
