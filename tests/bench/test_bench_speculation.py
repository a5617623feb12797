"""What `specserve bench serve` tells of draft tokens and steps, at servers that tell it or do not."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from measured_server import BODIES, DONE, answering, text_event, usage_event

from server_process import ServerProcess, serve_command

DRAFTERS = ("--plugin", "ngram", "--plugin", "eagle", "--set", "eagle.model=demo-eagle3", "--no-plugin", "adaptive")
"""They propose in every step, whatever it costs."""
LOAD = ("--prompts", "edit", "code", "--requests", "6", "--max-tokens", "48", "--ignore-eos", "--temperature", "0")
ANSWER = (text_event("a"), text_event("b"), text_event("", '"stop"'), usage_event(7, 9), DONE)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with ServerProcess(serve_command("demo", *DRAFTERS), tmp_path_factory.mktemp("drafts") / "server.log") as ready:
        yield ready


def command(url, *flags):
    return [sys.executable, "-m", "specserve", "bench", "serve", url, *flags]


def bench(url, *flags):
    """Its summary."""
    done = subprocess.run(command(url, *LOAD, *flags, "--json"), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)["summary"]


def test_all_steps_are_told_by_why_they_stopped_and_drafts_by_drafter(server):
    """Each step adds one token of the model's own, but where the answer ends with a draft token."""
    summary = bench(server.url, "--speculation")
    assert summary["acceptance"].keys() == {"ngram", "eagle"}
    accepted = sum(one["accepted"] for one in summary["acceptance"].values())
    assert accepted > 0
    steps = sum(summary["stops"].values())
    assert 0 <= steps - (summary["output_tokens"] - accepted) <= summary["num_requests"]
    kinds = {why.partition(":")[0] for why in summary["stops"]}
    assert {"rejected", "draft_end"} & kinds
    assert list(summary["stops"].values()) == sorted(summary["stops"].values(), reverse=True)


def test_a_table_shows_the_steps_where_they_were_asked_for(server):
    title = "steps, by why they accepted no more draft tokens"
    for flags, is_shown in ((("--speculation",), True), ((), False)):
        done = subprocess.run(command(server.url, *LOAD, *flags), capture_output=True, text=True, check=False)
        assert done.returncode == 0
        assert (title in done.stdout) == is_shown
        assert "drafter" in done.stdout


def test_a_server_that_is_not_asked_tells_no_steps_but_its_drafts(server):
    summary = bench(server.url)
    assert summary["stops"] == {}
    assert sum(one["accepted"] for one in summary["acceptance"].values()) > 0


def test_a_server_without_drafters_says_that_it_has_none(tmp_path):
    with ServerProcess(serve_command("demo", "--no-plugin", "ngram"), tmp_path / "server.log") as plain:
        summary = bench(plain.url, "--speculation")
    assert not summary["acceptance"]
    assert sum(summary["stops"].values()) == summary["output_tokens"]
    assert all("no drafter is enabled" in why or "computed the prompt" in why for why in summary["stops"])


async def at_another_server(*flags, **how):
    async with answering(ANSWER, **how) as other:
        words = command(str(other.make_url("")), "--model", "other", "--requests", "2", "--warm-up", "1", *flags)
        process = await asyncio.create_subprocess_exec(
            *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        output, errors = await process.communicate()
        return process.returncode, output.decode(), errors.decode(), other.app[BODIES]


async def test_a_server_that_tells_nothing_is_measured_all_the_same():
    code, output, errors, bodies = await at_another_server("--speculation", "--json")
    summary = json.loads(output)["summary"]
    assert (code, errors, summary["num_good"]) == (0, "", 2)
    assert (summary["acceptance"], summary["stops"], summary["tokens_per_step"]) == (None, {}, None)
    assert [body["return_speculation"] for body in bodies] == [True] * 3


async def test_no_table_is_shown_of_what_a_server_does_not_tell():
    code, output, _, bodies = await at_another_server()
    assert code == 0
    assert "requests answered" in output
    assert "draft" not in output
    assert "return_speculation" not in bodies[0]


def counters(drafted, accepted):
    return (
        f'vllm:spec_decode_num_draft_tokens_total{{engine="0"}} {drafted}\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{engine="0"}} {accepted}\n'
    )


async def test_drafts_are_those_of_the_counters_where_answers_tell_none():
    code, output, _, _ = await at_another_server("--json", counters=(counters(100, 90), counters(140, 110)))
    assert code == 0
    assert json.loads(output)["summary"]["acceptance"] == {"all": {"drafted": 40, "accepted": 20}}


async def test_a_server_that_refuses_the_field_says_so_before_anything_is_measured():
    code, output, errors, bodies = await at_another_server("--speculation", status=400)
    assert (code, output, len(bodies)) == (2, "", 1)
    assert "a request of the warm-up failed: status 400" in errors
