"""deploy/routers/serve_many.py: servers and a router that start, go on after a crash, and end together."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from install import BUILD
from processes import FLAGS, free_port

SCRIPT = Path(__file__).parents[2] / "deploy" / "routers" / "serve_many.py"


def command(router, *arguments, port="8000"):
    path = BUILD / router / "bin" / router
    return [sys.executable, str(SCRIPT), str(path), "2", "--port", str(port), *arguments, "--", "demo", *FLAGS]


def complete(port):
    body = json.dumps({"model": "demo", "prompt": "def main(", "max_tokens": 4}).encode()
    request = Request(f"http://127.0.0.1:{port}/v1/completions", body, {"content-type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def eventually(holds, seconds=60):
    until = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except OSError:
            pass
        assert time.monotonic() < until, "it never came"
        time.sleep(0.2)


def running(pattern):
    """Process ids of this user's processes with these words in their command lines."""
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False)
    return {int(word) for word in found.stdout.split()}


@pytest.mark.parametrize(("router", "events"), [("smg", ()), ("vllm-router", ("--kv-events",))])
def test_all_start_and_end_together_and_a_dead_server_starts_again(router, events, tmp_path):
    port, log = free_port(), tmp_path / "log"
    more = f"--prometheus-port {free_port()}"
    with log.open("w") as file:
        process = subprocess.Popen(
            command(router, *events, "--router-args", more, port=port),
            stdout=file, stderr=file, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        try:
            eventually(lambda: complete(port) == 4)
            ports = re.findall(r"serve_many: http://127.0.0.1:(\d+), http://127.0.0.1:(\d+) behind", log.read_text())[0]
            (victim,) = children_of(process.pid) & running("specserve serve demo .*--port 0") & listening(ports[0])
            os.kill(victim, signal.SIGKILL)
            eventually(lambda: f"the server on port {ports[0]} has ended; it starts again" in log.read_text())
            eventually(lambda: urlopen(f"http://127.0.0.1:{ports[0]}/health", timeout=5).status == 200)
            assert complete(port) == 4
            started = children_of(process.pid)
            assert len(started) == 3
        finally:
            process.terminate()
            process.wait(30)
    assert not any(Path(f"/proc/{child}").exists() for child in started)


def children_of(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return {int(word) for word in found.stdout.split()}


def listening(port):
    """The processes that listen on this port, by /proc."""
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1].endswith(f":{int(port):04X}") and fields[3] == "0A":
            inodes.add(f"socket:[{fields[9]}]")
    return {
        int(path.parts[2])
        for path in Path("/proc").glob("[0-9]*/fd/*")
        if path.is_symlink() and link_of(path) in inodes
    }


def link_of(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def test_a_router_that_cannot_read_kv_events_over_http_is_refused():
    ended = subprocess.run(command("smg", "--kv-events"), capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "vllm-router reads KV events over HTTP" in ended.stderr
