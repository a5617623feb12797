"""What `make demo` runs: a server, one streamed completion over HTTP, its speed, and a clean shut-down.

Run: `python demo/run_demo.py [options of specserve serve]`, such as `--plugin ngram`. Knows nothing of the
engine but the command line and the wire.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

SPECSERVE = [sys.executable, "-c", "import sys; from specserve.cli import main; sys.exit(main())"]
READY = "specserve: ready on "
START_SECONDS = 300.0
STOP_SECONDS = 20.0
PROMPT = '''import os
import re


def read_settings(path, encoding="utf-8"):
    """Read KEY=VALUE lines from a file and return them as a dictionary.

    Blank lines and lines that begin with "#" are skipped.
    """
    settings = {}
    with open(path, encoding=encoding) as file:
        for number, line in enumerate(file, 1):
            line = line.strip()'''
"""It ends within the line: after a line break of its own the model would have to begin in the middle of a token."""
REQUEST = {
    "prompt": PROMPT,
    "max_tokens": 160,
    "temperature": 0.7,
    "top_p": 0.95,
    "seed": 7,
    "ignore_eos": True,
    "stream": True,
    "stream_options": {"include_usage": True},
}


class DemoError(Exception):
    """What went wrong, in a sentence."""


async def main(options: list[str]) -> int:
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "server.log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [*SPECSERVE, "serve", "--port", "0", *options], stdout=output, stderr=subprocess.STDOUT
            )
        try:
            url = await wait_until_ready(server, log)
            await stream_completion(url)
            await stop(server)
        except (DemoError, aiohttp.ClientError, TimeoutError) as error:
            print(f"\ndemo: {error or type(error).__name__}\n--- the server's log ---\n{read(log)}", file=sys.stderr)
            return 1
        finally:
            if server.poll() is None:
                server.kill()
            server.wait()
    return 0


async def wait_until_ready(server: subprocess.Popen[bytes], log: Path) -> str:
    """The server's address, which it prints when it has loaded; a line says how long that takes."""
    started = time.monotonic()
    while True:
        lines = [line for line in read(log).splitlines() if line.startswith(READY)]
        seconds = time.monotonic() - started
        if lines:
            url = lines[0].removeprefix(READY).strip()
            print(f"{'' if not sys.stdout.isatty() else chr(13)}demo: ready on {url} after {seconds:.1f} s\n")
            return url
        if server.poll() is not None:
            raise DemoError(f"the server ended with exit code {server.returncode} before it was ready.")
        if seconds > START_SECONDS:
            raise DemoError(f"the server was not ready after {START_SECONDS:.0f} s.")
        if sys.stdout.isatty():
            print(f"\rdemo: loading the model, {seconds:.0f} s", end="", flush=True)
        await asyncio.sleep(0.1)


async def stream_completion(url: str) -> None:
    """Print the prompt, the text as it arrives, and how fast that was."""
    print(PROMPT, end="", flush=True)
    asked = time.perf_counter()
    first = 0.0
    last: dict[str, Any] = {}
    timeout = aiohttp.ClientTimeout(total=300)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{url}/v1/completions", json=REQUEST) as answer,
    ):
        if answer.status != 200:
            raise DemoError(f"the server answered {answer.status}: {await answer.text()}")
        async for line in answer.content:
            event = parse_event(line)
            if event is None:
                continue
            first = first or time.perf_counter()
            last = event
            for choice in event["choices"]:
                print(choice["text"], end="", flush=True)
    report(last, first - asked, time.perf_counter() - asked)


def parse_event(line: bytes) -> dict[str, Any] | None:
    """The JSON of a `data:` line; None for blank lines and the end."""
    data = line.decode().strip().removeprefix("data:").strip()
    if data in ("", "[DONE]"):
        return None
    event: dict[str, Any] = json.loads(data)
    if "error" in event:
        raise DemoError(f"the stream ended with an error: {event['error']['message']}")
    return event


def report(last: dict[str, Any], first_seconds: float, seconds: float) -> None:
    if "usage" not in last:
        raise DemoError("the stream ended without its usage chunk.")
    num_tokens = last["usage"]["completion_tokens"]
    decoding = max(seconds - first_seconds, 1e-9)
    print(f"\n\ndemo: {num_tokens} tokens in {seconds:.2f} s")
    print(f"demo: time to first token {first_seconds * 1000:.0f} ms, then {(num_tokens - 1) / decoding:.1f} tokens/s")
    figures = last.get("metrics", {}).get("speculative_decoding")
    if figures is not None:
        print(
            f"demo: mean acceptance length {figures['mean_acceptance_length']:.2f}, "
            f"{figures['num_accepted_draft_tokens']} of {figures['num_draft_tokens']} drafts accepted"
        )


async def stop(server: subprocess.Popen[bytes]) -> None:
    """SIGTERM, and the exit code 0 that it promises."""
    server.send_signal(signal.SIGTERM)
    try:
        code = await asyncio.to_thread(server.wait, STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise DemoError(f"the server did not stop within {STOP_SECONDS:.0f} s of SIGTERM.") from None
    if code != 0:
        raise DemoError(f"the server ended with exit code {code}.")
    print("demo: the server has stopped")


def read(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


def run(options: list[str]) -> int:
    """`main`, ended by Ctrl-C, SIGTERM or a closed pipe without a traceback, and never without its server."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return asyncio.run(main(options))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
