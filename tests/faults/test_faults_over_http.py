"""A server with plugins that fail in everything: 64 answers are those of a server without, and /health says 200."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer
from faulty import Misbehaving, in_process
from parts import NoAdapters, Quiet, State
from prometheus_client.parser import text_string_to_metric_families

from both_forms import FORMS, in_form
from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.protocols import LogitsProcessor, ResolvedModel
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.drafters import WrongDrafter
from specserve_workbench.testing.engines import DEFAULTS

MARK = 299


def fail(*arguments):
    raise ValueError("no")


class ForMarked(LogitsProcessor):
    """A logits processor that fails for prompts which end with the mark."""

    def start(self, request, vocab_size):
        return Misbehaving(State(), "apply", fail) if request.tokens[-1] == MARK else None


def resolve(name):
    if name == "broken":
        raise OSError("gone")
    return ResolvedModel("tuned", None, "tuned@1", fail) if name == "tuned" else None


def faulty_in_everything():
    asked = iter((False,))
    told = Misbehaving(Quiet(), "metrics", fail, lambda *_: next(asked, True))
    return in_process(
        "faulty",
        make_observer=lambda: Misbehaving(told, "observe", fail),
        make_draft_planner=lambda: Misbehaving(FixedWidthPlanner(8), "learn", fail),
        make_drafter=lambda: Misbehaving(WrongDrafter({}, 2, 320), "propose", fail),
        logits_processors=lambda: [ForMarked()],
        check_request=fail_check,
        make_lora_planner=lambda: Misbehaving(NoAdapters(), "plan", fail),
        resolve_model=resolve,
        list_models=fail_list,
    )


def fail_check(request):
    raise ValueError("no")


def fail_list():
    raise ValueError("no")


@asynccontextmanager
async def serving(model, extra, form="direct"):
    config = EngineConfig(model=str(model), **DEFAULTS | {"max_num_seqs": 32}, allow_undeclared=True)
    engine = await AsyncEngine.start(config, extra=extra)
    async with (
        in_form(form, engine, ServerConfig()) as attached,
        TestClient(TestServer(make_app(attached, ServerConfig()))) as client,
    ):
        yield client


async def ask(client, i, **more):
    body = {"prompt": [1 + i, 2, 3], "max_tokens": 6, "temperature": (0, 1)[i % 2], "seed": i, "logprobs": 1} | more
    answer = await client.post("/v1/completions", json=body)
    content = await answer.json()
    return answer.status, [c | {"index": 0} for c in content["choices"]] if answer.status == 200 else content["error"]


async def samples(client):
    answer = await client.get("/metrics")
    assert answer.status == 200
    families = text_string_to_metric_families(await answer.text())
    return {(s.name, *map(s.labels.get, ("plugin", "part", "reason"))): s.value for f in families for s in f.samples}


@pytest.fixture(scope="module")
def answers(toy_model):
    async def plain():
        async with serving(toy_model, {}) as client:
            return await asyncio.gather(*(ask(client, i) for i in range(64)))

    return asyncio.run(plain())


@pytest.mark.parametrize("form", FORMS)
async def test_64_answers_are_those_without_the_plugin_and_each_culprit_is_named(toy_model, answers, form):
    async with serving(toy_model, faulty_in_everything(), form) as client:
        marked = {"prompt": [5, MARK]}
        culprits = [ask(client, i, **marked) for i in range(3)] + [ask(client, 3, model="tuned")]
        several = await asyncio.gather(*(ask(client, i) for i in range(64)), *culprits)
        assert several[:64] == answers
        assert {status for status, _ in several[64:]} == {500}
        assert several[64][1]["message"] == "the logits processor of faulty raised ValueError: no"
        status, error = await ask(client, 1, model="broken")
        assert (status, error["code"]) == (500, "generation_failed")
        assert "faulty failed" in error["message"]
        assert (await client.get("/v1/models")).status == (await client.get("/health")).status == 200
        found = await samples(client)
    named = {part for name, plugin, part, _ in found if name == "specserve_plugin_faults_total" and plugin == "faulty"}
    assert named >= {
        "observer", "observer's metrics", "planner's learning", "logits processor", "request check", "LoRA planner",
        "resolve_model", "list_models", "release of a model",
    }  # fmt: skip
    assert found["specserve_plugin_part_disabled", "faulty", "observer", None] == 1


@pytest.mark.parametrize("form", FORMS)
async def test_a_stream_whose_processor_fails_ends_with_an_error_event(toy_model, form):
    has_begun = threading.Event()

    class Later(State):
        calls = 0

        def commit(self, tokens):
            self.calls += 1
            if self.calls == 3:
                assert has_begun.wait(60), "nothing was streamed"
                raise ValueError("three is enough")

    class Starting(LogitsProcessor):
        def start(self, request, vocab_size):
            return Later()

    extra = in_process("faulty", logits_processors=lambda: [Starting()])
    async with serving(toy_model, extra, form) as client:
        body = {"prompt": [1, 2], "max_tokens": 20, "logprobs": 1, "stream": True, "temperature": 0, "ignore_eos": True}
        response = await client.post("/v1/completions", json=body)
        text = (await response.content.readuntil(b"\n\n")).decode()
        has_begun.set()
        text += await response.text()
        events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line.startswith("data: {")]
        assert "the logits processor of faulty raised ValueError: three is enough" in events[-1]["error"]["message"]
        assert (await client.get("/health")).status == 200


@pytest.fixture
def no_log():
    """Of texts that pytest cannot send from its workers."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.usefixtures("no_log")
async def test_a_message_that_cannot_be_encoded_ends_its_own_request(toy_model, answers, form):

    class Unwritable(LogitsProcessor):
        def start(self, request, vocab_size):
            def fail(*arguments):
                raise ValueError("\ud800")

            return Misbehaving(State(), "apply", fail) if request.tokens[-1] == MARK else None

    extra = in_process("faulty", logits_processors=lambda: [Unwritable()])
    async with serving(toy_model, extra, form) as client:
        asked = [ask(client, i) for i in range(8)]
        marked = client.post("/v1/completions", json={"prompt": [5, MARK], "max_tokens": 6})
        *found, culprit = await asyncio.wait_for(asyncio.gather(*asked, marked), 60)
        assert found == answers[:8]
        assert culprit.status == 500
