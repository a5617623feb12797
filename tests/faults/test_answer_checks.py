"""A plugin's check of an answer that fails: the answer is sent without it, and the fault is counted."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer
from faulty import in_process
from parts import State
from test_faults_over_http import samples

from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve.protocols import AnswerCheck, LogitsProcessor
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.engines import DEFAULTS

BODY = {"prompt": [1, 2, 3], "max_tokens": 4, "temperature": 0, "response_format": {"type": "json_object"}}


class Enforcing(LogitsProcessor):
    """Says that it enforces a form."""

    output_kinds = frozenset({"json_object"})

    def start(self, request, vocab_size):
        return State()


async def validation_of(model, check):
    config = EngineConfig(model=str(model), **DEFAULTS, allow_undeclared=True)
    extra = in_process("faulty", logits_processors=lambda: [Enforcing()], check_answer=check)
    engine = await AsyncEngine.start(config, extra=extra)
    async with TestClient(TestServer(make_app(engine, ServerConfig()))) as client:
        answer = await client.post("/v1/completions", json=BODY)
        assert answer.status == 200
        (choice,) = (await answer.json())["choices"]
        found = await samples(client)
    faults = {
        part: value for (name, plugin, part, _), value in found.items() if name == "specserve_plugin_faults_total"
    }
    return choice.get("validation"), faults.get("check_answer", 0)


def fail(request, text, finish_reason):
    raise ValueError("no")


WRONG = {
    "raises": fail,
    "a text": lambda text: "fine",
    "a mapping": lambda text: {"valid": True},
    "a text for texts": lambda text: AnswerCheck(valid=True, unenforced="all"),
    "a number for a truth": lambda text: AnswerCheck(valid=1, unenforced=()),
    "nothing for texts": lambda text: AnswerCheck(valid=False, unenforced=(), errors=None),
}


@pytest.mark.parametrize("check", WRONG.values(), ids=WRONG)
async def test_the_answer_is_sent_without_the_check_and_the_fault_is_counted(toy_model, check):
    assert await validation_of(toy_model, check) == (None, 1)


async def test_a_check_gets_what_the_client_gets_and_its_result_is_in_the_answer(toy_model):
    asked = []

    def check(request, text, finish_reason):
        asked.append((request.params.structured_output.kind, finish_reason, bool(text)))
        return AnswerCheck(valid=None, unenforced=("all",), errors=("none",))

    found = {"valid": None, "unenforced": ["all"], "errors": ["none"]}
    assert await validation_of(toy_model, check) == (found, 0)
    assert asked == [("json_object", "length", True)]
