"""`return_speculation` over real drafters: what is told adds up to the answer's counts and to /metrics, says who
drafted and why not, and changes no token."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from response_checks import check_steps, join_chunks
from test_end_to_end import decided, samples, stream

from both_forms import in_form
from specserve.config import EngineConfig
from specserve.engine.async_engine import AsyncEngine
from specserve_adaptive.step_costs import StepCosts
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_workbench.testing.engines import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

PROMPT = "one two three four, one two three four, one two"
BODY = {"prompt": PROMPT, "max_tokens": 40, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
TOLD = {**BODY, "return_speculation": True}
FIXED = {"draft_tokens": 4, "max_draft_batch": 64}
SCHEMA = {
    "type": "object",
    "properties": {"name_of_the_field": {"enum": ["running", "stopped"]}},
    "required": ["name_of_the_field"],
    "additionalProperties": False,
}


class DraftsPay(StepCosts):
    """Of a made-up machine: what is planned does not depend on this one."""

    def observe(self, batch: Any, seconds: float) -> None:
        pass


@asynccontextmanager
async def serving(model: Path, *plugins: str, form: str = "direct", **options: Any) -> AsyncIterator[Any]:
    """A client of a server with these plugins."""
    tables = {"eagle": {"model": str(model), "topk": 3}, "adaptive": {"cost_cache": "none"}}
    own = {name: table for name, table in tables.items() if name in plugins}
    settings = {**DEFAULTS, "plugins": plugins, "plugin_options": own, **options}
    engine = await AsyncEngine.start(EngineConfig(model=str(model), **settings))
    if "adaptive" in plugins:
        planner = engine.engine.planner.planner  # type: ignore[attr-defined]
        planner.costs = planner.regimes.costs = DraftsPay([1, 64], [1.0, 1.5])
    config = ServerConfig()
    async with in_form(form, engine, config) as attached, TestClient(TestServer(make_app(attached, config))) as client:
        yield client
    if form == "direct":
        await engine.stop()


async def complete(client: Any, **body: Any) -> Any:
    response = await client.post("/v1/completions", json=body)
    assert response.status == 200, await response.text()
    return await response.json()


def steps_of(answer: Any) -> list[Any]:
    return [step for choice in answer["choices"] for step in choice["speculation"]["steps"]]


def counts_of(steps: list[Any]) -> dict[str, dict[str, int]]:
    """By drafter."""
    counts: dict[str, dict[str, int]] = {}
    for node in (node for step in steps for node in step["draft"]):
        own = counts.setdefault(node["drafter"], {"num_accepted_draft_tokens": 0, "num_draft_tokens": 0})
        own["num_draft_tokens"] += 1
        own["num_accepted_draft_tokens"] += node["accepted"]
    return counts


async def check_sums(client: Any, answers: list[Any]) -> list[Any]:
    """The steps, whose sums are those of each answer's statistics, and of /metrics if nobody else asked."""
    for answer in answers:
        statistics, steps = answer["metrics"]["speculative_decoding"], steps_of(answer)
        for choice in answer["choices"]:
            check_steps(choice)
        drafts = [step["draft"] for step in steps if step["draft"]]
        accepted = [sum(node["accepted"] for node in draft) for draft in drafts]
        assert statistics.get("drafters", {}) == counts_of(steps)
        assert (len(drafts), sum(accepted)) == (
            statistics["num_spec_steps"],
            statistics["num_accepted_draft_tokens"],
        )
        assert statistics["acceptance_histogram"] == [accepted.count(n) for n in range(max(accepted, default=-1) + 1)]
        assert answer["usage"]["completion_tokens"] == sum(len(step["tokens"]) for step in steps)
    steps = [step for answer in answers for step in steps_of(answer)]
    found, counts = await samples(client), counts_of(steps)
    for name, metric in (("num_draft_tokens", "draft_tokens"), ("num_accepted_draft_tokens", "accepted_draft_tokens")):
        assert found[f"specserve_{metric}_total"] == sum(own[name] for own in counts.values()) > 0
    return steps


@pytest.mark.parametrize("form", ["direct", "socket"])
@pytest.mark.parametrize(
    ("plugins", "options", "stopped"),
    [
        (("ngram",), FIXED, {"rejected", "draft_ended", "no_draft"}),
        (("eagle",), FIXED, {"draft_ended", "no_draft"}),  # the target drafts for itself
        (("ngram", "eagle", "adaptive"), {}, {"draft_ended", "no_draft"}),
    ],
)
async def test_steps_add_up_to_the_answers_counts_and_to_the_metrics(
    toy_model: Path, form: str, plugins: tuple[str, ...], options: dict[str, Any], stopped: set[str]
) -> None:
    async with serving(toy_model, *plugins, form=form, **options) as client:
        bodies = [{**TOLD, "prompt": f"{i} {PROMPT}", "temperature": 0.3, "seed": i, "n": 2} for i in range(3)]
        answers = await asyncio.gather(*(complete(client, **body) for body in bodies))
        steps = await check_sums(client, answers)
        plain = [await complete(client, **{**body, "return_speculation": False}) for body in bodies]
    assert set(counts_of(steps)) <= set(plugins)
    assert stopped <= {step["stopped"] for step in steps}
    assert all(0 < step["milliseconds"] < 600_000 for step in steps)
    assert [decided(answer) for answer in answers] == [decided(answer) for answer in plain]


async def test_drafts_of_two_drafters_are_one_tree_that_names_them(toy_model: Path) -> None:
    async with serving(toy_model, "ngram", "eagle", "adaptive") as client:
        answers = [await complete(client, **{**TOLD, "seed": i, "temperature": 0.5}) for i in range(4)]
        steps = await check_sums(client, answers)
    drafts = [step["draft"] for step in steps if step["draft"]]
    assert any({node["drafter"] for node in draft} == {"ngram", "eagle"} for draft in drafts)
    assert any(len({node["parent"] for node in draft}) < len(draft) for draft in drafts), "a node has two children"
    for draft in drafts:
        for node in draft:
            above = 1.0 if node["parent"] is None else draft[node["parent"]]["survival"]
            assert node["survival"] is None or node["survival"] <= above


async def test_a_stream_tells_the_steps_of_the_whole_answer(toy_model: Path) -> None:
    async with serving(toy_model, "eagle", **FIXED, stream_interval=5) as client:
        whole = await complete(client, **TOLD)
        chunks = await stream(client, **TOLD)
    assert max(len(chunk["choices"][0]["speculation"]["steps"]) for chunk in chunks) > 1
    for chunk in chunks:
        check_steps(chunk["choices"][0])
    (joined,) = join_chunks(chunks)
    for step in [*steps_of(whole), *joined["speculation"]["steps"]]:
        del step["milliseconds"]
    assert joined["speculation"]["steps"] == steps_of(whole)


async def test_the_planner_says_why_it_verified_nothing(toy_model: Path) -> None:
    async with serving(toy_model, "ngram", "adaptive") as client:
        steps = steps_of(await complete(client, **{**TOLD, "max_tokens": 120, "temperature": 1.5, "seed": 1}))
        off = steps_of(await complete(client, **TOLD, speculation={"enabled": False}))
    reasons = {step["reason"] for step in steps if not step["draft"]}
    ours = {"the step computed the prompt", "no draft came from ngram", "the request needs one token more at most"}
    words = {reason.rpartition(": ")[2] for reason in reasons - ours}
    assert words
    assert words <= {"does not pay", "drafted rarely", "plain step measured", "budget", "the planner wanted no draft"}
    assert words & {"does not pay", "drafted rarely"}
    assert {(step["stopped"], step["reason"]) for step in off[1:]} == {
        ("no_draft", "the request switches speculation off")
    }
    assert not any(step["draft"] for step in off)


async def test_text_that_a_form_forces_is_drafted_by_the_grammar(toy_model: Path) -> None:
    body = {**TOLD, "structured_outputs": {"json": SCHEMA}, "ignore_eos": False, "max_tokens": 80, "logprobs": 0}
    async with serving(toy_model, "grammar", "ngram", **FIXED) as client:
        answer = await complete(client, **body)
        steps = await check_sums(client, [answer])
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert "grammar" in {node["drafter"] for step in steps for node in step["draft"] if node["accepted"]}
    texts = [token["text"] for step in steps for token in step["tokens"]]
    assert texts == choice["logprobs"]["tokens"]


async def test_one_of_a_batch_of_32_asks(toy_model: Path) -> None:
    async with serving(toy_model, "ngram", **FIXED, max_num_seqs=32) as client:
        bodies = [{**(TOLD if i == 7 else BODY), "prompt": f"{i} {PROMPT}", "max_tokens": 16} for i in range(32)]
        answers = await asyncio.gather(*(complete(client, **body) for body in bodies))
    assert [i for i, answer in enumerate(answers) if "speculation" in answer["choices"][0]] == [7]
    check_steps(answers[7]["choices"][0])
    statistics = answers[7]["metrics"]["speculative_decoding"]
    assert counts_of(steps_of(answers[7])) == statistics["drafters"]
