"""`specserve bench serve` against a server of the demo model, as a user starts both."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from urllib.request import Request, urlopen

import pytest

from server_process import ServerProcess, serve_command
from specserve_bench.client.server_facts import drafted_in


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    log = tmp_path_factory.mktemp("bench") / "server.log"
    command = serve_command("demo", "--plugin", "ngram", "--draft-tokens", "4", "--api-key", "secret")
    with ServerProcess(command, log) as ready:
        yield ready


def command(*words, key="secret"):
    return [sys.executable, "-m", "specserve", "bench", "serve", *words, "--api-key", key]


def bench(*words, **how):
    return subprocess.run(command(*words, **how), capture_output=True, text=True, check=False, timeout=500)


def test_every_figure_of_a_run_is_there(server, tmp_path):
    flags = ("--requests", "8", "--concurrency", "4", "--max-tokens", "24", "--ignore-eos", "--slo", "e2e=60000")
    done = bench(server.url, *flags, "--json", "--out", str(tmp_path / "out.json"))
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    summary = found["summary"]
    assert (found["model"], summary["num_good"], summary["output_tokens"]) == ("demo", 8, 8 * 24)
    assert summary["output_tokens_per_second"] == pytest.approx(192 / summary["seconds"])
    assert summary["goodput"]["share"] == 1.0
    assert summary["tokens_counted_by"] == "usage"
    assert 0 < summary["latencies"]["ttft"]["p50"] < summary["latencies"]["e2e"]["p50"]
    records = json.loads((tmp_path / "out.json").read_text())["records"]
    assert [record["kind"] for record in records] == ["code", "edit", "chat", "json"] * 2
    assert summary["seconds"] == pytest.approx(max(r["sent"] + r["last"] for r in records), rel=0.05)


def test_acceptance_is_told_by_drafter(server):
    flags = ("--prompts", "edit", "--requests", "4", "--max-tokens", "64", "--temperature", "0", "--seed", "5")
    summary = json.loads(bench(server.url, *flags, "--json").stdout)["summary"]
    (counts,) = summary["acceptance"].values()
    assert summary["acceptance"].keys() == {"ngram"}
    assert counts["drafted"] >= counts["accepted"] > 0
    steps = summary["output_tokens"] - counts["accepted"]
    assert summary["tokens_per_step"] == pytest.approx(summary["output_tokens"] / steps)


def test_random_prompts_have_exactly_the_length_that_was_asked(server):
    flags = ("--prompts", "random", "--input-tokens", "40", "--requests", "3", "--max-tokens", "4", "--rate", "50")
    summary = json.loads(bench(server.url, *flags, "--json").stdout)["summary"]
    assert (summary["prompt_tokens"], summary["num_good"]) == (120, 3)


def test_failed_requests_are_shown_by_kind_and_give_exit_code_1(server):
    done = bench(server.url, "--requests", "3", "--model", "nobody", "--warm-up", "0")
    assert done.returncode == 1
    assert "failed: status 404             3" in done.stdout
    assert 'no model \\"nobody\\" is served' in done.stdout


def test_a_wrong_key_is_told_before_anything_is_measured(server):
    done = bench(server.url, key="wrong")
    assert done.returncode == 2
    assert "401" in done.stderr
    assert "--api-key" in done.stderr


def test_a_warm_up_that_fails_ends_it(server):
    done = bench(server.url, "--model", "nobody")
    assert done.returncode == 2
    assert "--warm-up 0" in done.stderr


def test_where_no_server_is_it_says_so():
    done = bench("http://127.0.0.1:9")
    assert done.returncode == 2
    assert "no server answers at http://127.0.0.1:9" in done.stderr


def test_an_interrupted_run_shows_what_it_has_and_says_that_it_is_a_part(server, tmp_path):
    flags = ("--requests", "50", "--concurrency", "1", "--warm-up", "0", "--max-tokens", "200", "--ignore-eos")
    files = ("--out", str(tmp_path / "out.json"), "--report", str(tmp_path / "out.html"))
    words = command(server.url, *flags, *files)
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        before = answered(server.url)
        while answered(server.url) < before + 2:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    found = json.loads((tmp_path / "out.json").read_text())
    count = found["summary"]["num_good"]
    assert found["interrupted"]
    assert 1 <= count == len(found["records"]) < 50
    assert f"partial, {count} of 50 requests" in output
    assert f"requests answered             {count} of {count}" in output
    assert errors == f"specserve: interrupted: partial, {count} of 50 requests.\n"
    assert f"partial, {count} of 50 requests" in (tmp_path / "out.html").read_text()


def answered(url):
    """Requests that have ended well since the server's start."""
    request = Request(f"{url}/metrics", headers={"Authorization": "Bearer secret"})
    with urlopen(request) as answer:
        return float(re.search(rb'request_success_total{[^}]*"length"[^}]*} (\S+)', answer.read())[1])


METRICS = """\
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="demo"} 30.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="demo"} 12.0
"""
BY_DRAFTER = """\
specserve_draft_tokens_total{drafter="ngram",engine="0"} 3e1
specserve_accepted_draft_tokens_total{drafter="ngram",engine="0"} 12.0
"""


def test_counters_of_other_servers_are_read_too():
    (everything,) = drafted_in(METRICS).values()
    assert (everything.drafted, everything.accepted) == (30, 12)
    assert drafted_in(METRICS + BY_DRAFTER) == {"ngram": everything}
    assert drafted_in("up 1\n") is None
