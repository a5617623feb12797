"""What `make demo` runs: a server, completions streamed over HTTP with and without drafts, and a clean shut-down.

Run: `python demo/run_demo.py [--cases code|chat] [options of specserve serve]`, such as `--plugin ngram`. Knows nothing
of the engine but the command line and the wire.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from demo_colours import Painter, show_prompt, wants_colour
from demo_requests import CASES, WARM_UP
from demo_stream import DemoError, Streamed, show_nothing, stream

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from demo_requests import Case

SPECSERVE = [sys.executable, "-m", "specserve"]
USAGE = "run_demo.py [--cases {code,chat}] [options of specserve serve]"
READY = "specserve: ready on "
START_SECONDS = 300.0
STOP_SECONDS = 20.0
CANCEL_AGAIN_SECONDS = 0.2


async def main(cases: Sequence[Case], options: list[str]) -> int:
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "server.log"
        with log.open("wb") as output:
            server = subprocess.Popen(
                [*SPECSERVE, "serve", "--port", "0", *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only the demo: a server that stops first looks like a failure
            )
        try:
            url = await wait_until_ready(server, log)
            await show_cases(url, cases)
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


async def show_cases(url: str, cases: Sequence[Case]) -> None:
    """Each text once as it arrives and, where there is a drafter, once more without it: both must be the same."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=300)) as session:
        drafters = await find_drafters(session, url)
        painter = Painter(drafters)
        if not drafters:
            print("demo: no drafter runs, so this is plain decoding; --plugin ngram brings one\n")
        elif wants_colour():
            print(f"demo: in colour what a drafter guessed and the model confirmed: {painter.legend()}\n")
        await stream(session, url, WARM_UP.body(speculate=bool(drafters)), show_nothing)
        for case in cases:
            print(f"demo: {case.title}\n")
            show_prompt(case.prompt)
            shown = await stream(session, url, case.body(speculate=True), painter.show)
            print("\n")
            if drafters:
                plain = await stream(session, url, case.body(speculate=False), show_nothing)
                check_equal(plain, shown)
                report_both(plain, shown, drafters)
            else:
                report(shown)


async def find_drafters(session: aiohttp.ClientSession, url: str) -> list[str]:
    async with session.get(f"{url}/v1/plugins") as answer:
        names: list[str] = (await answer.json())["engine"]["drafters"]
        return names


def check_equal(plain: Streamed, drafted: Streamed) -> None:
    """Raise DemoError unless the texts with and without drafts are equal."""
    if (plain.token_ids, plain.text) != (drafted.token_ids, drafted.text):
        raise DemoError(
            f"drafts changed the text, which must never happen. Without them:\n{plain.text}\nWith them:\n{drafted.text}"
        )


def report(shown: Streamed) -> None:
    first = (shown.first - shown.asked) * 1000
    print(f"demo: {len(shown.token_ids)} tokens, the first after {first:.0f} ms, then {shown.rate:.0f} tokens/s\n")


def report_both(plain: Streamed, drafted: Streamed, drafters: list[str]) -> None:
    """Says who guessed how much where there are several drafters."""
    print(
        f"demo: {len(plain.token_ids)} tokens at {plain.rate:.0f} tokens/s without and {drafted.rate:.0f} tokens/s "
        f"with drafts: {drafted.rate / plain.rate:.2f}x"
    )
    figures = drafted.figures
    if figures is None:
        print("demo: no draft was worth verifying")
    else:
        shares = ", ".join(f"{drafted.guessed_by[name]} from {name}" for name in drafters)
        print(
            f"demo: mean acceptance length {figures['mean_acceptance_length']:.2f}, "
            f"{figures['num_accepted_draft_tokens']} of {figures['num_draft_tokens']} drafted tokens accepted"
            f"{': ' + shares if len(drafters) > 1 else ''}"
        )
    print("demo: both texts are the same, token for token\n")


async def stop(server: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM and check for exit code 0."""
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


async def until_interrupted(work: Coroutine[Any, Any, int]) -> int:
    """What `work` returns, or 130 after a signal. It is cancelled until it ends: one cancellation can be lost in a
    connection that is just being made."""
    interrupted = asyncio.Event()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(ending, interrupted.set)
    task, signalled = asyncio.ensure_future(work), asyncio.ensure_future(interrupted.wait())
    await asyncio.wait({task, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if task.done():
        return task.result()
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=CANCEL_AGAIN_SECONDS)
    return 130


def run(options: list[str]) -> int:
    """`main`, ended by Ctrl-C, SIGTERM, a closed terminal or pipe without a traceback, and never without its server."""
    parser = argparse.ArgumentParser(usage=USAGE, allow_abbrev=False)
    parser.add_argument("--cases", choices=CASES, default="code")
    own, serving = parser.parse_known_args(options)
    try:
        return asyncio.run(until_interrupted(main(CASES[own.cases], serving)))
    except BrokenPipeError:  # the reader, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
