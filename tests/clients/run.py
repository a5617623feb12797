"""`make test-clients`: unmodified clients, each in an environment of its own, against `specserve serve` in both forms.

Owns the order and the summary. A client that cannot be installed counts as failed. Logs go to build/clients/logs/FORM.
Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from environments import BUILD, CLIENTS, HERE, Client, Environment, InstallError, clean_environment, make

sys.path.append(str(HERE.parent))
from served import command, running_requests, variables

from server_process import FORMS, NotReadyError, ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

LOGS = BUILD / "logs"
TIME_LIMIT = 600.0
"""Seconds that one client's tests may take."""
COUNT = re.compile(r"\d+ (passed|failed|error|skipped|xfailed)|# (pass|fail|skipped) \d+")
"""In the last line of pytest, and in those of node's test runner."""
NOTABLE = re.compile(r"(FAILED|ERROR|SKIPPED|XFAIL|XPASS) \S|\s*not ok|.*# SKIP")
"""A test that failed, was skipped or was expected to fail, as both say so."""


class Outcome(NamedTuple):
    name: str
    said: str
    good: bool
    seconds: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clients", nargs="*", help=f"of {', '.join(CLIENTS)}; default: all that are due")
    parser.add_argument("--form", choices=FORMS, help="where the engine runs; default: one after the other")
    arguments = parser.parse_args()
    names = arguments.clients or [name for name, client in CLIENTS.items() if client.is_due]
    if unknown := [name for name in names if name not in CLIENTS]:
        parser.error(f"there is no client {', '.join(unknown)}; there are {', '.join(CLIENTS)}")
    for name in CLIENTS.keys() - names if not arguments.clients else ():
        print(f"== {name} is left out: it is not installed; CLIENTS={name} installs it", flush=True)
    outcomes, ready = install([CLIENTS[name] for name in names])
    for form in (arguments.form,) if arguments.form else FORMS:
        print(f"== --{form}", flush=True)
        outcomes += [outcome._replace(name=f"{outcome.name}, {form}") for outcome in run_all(ready, form)]
    return summarise(outcomes)


def install(clients: list[Client]) -> tuple[list[Outcome], list[tuple[Client, Environment]]]:
    """What could not be installed, and what could."""
    failed, ready = [], []
    for client in clients:
        try:
            ready.append((client, make(client)))
        except InstallError as error:
            print(f"== {client.name} could not be installed: {error}", flush=True)
            failed.append(Outcome(client.name, "could not be installed", False))
    return failed, ready


def run_all(ready: list[tuple[Client, Environment]], form: str) -> list[Outcome]:
    """Against one server, whose own outcomes come last."""
    logs = LOGS / form
    logs.mkdir(parents=True, exist_ok=True)
    try:
        with ServerProcess(command(form), logs / "server.log") as server:
            print(f"== the server is ready on {server.url}", flush=True)
            outcomes = [run(client, environment, variables(server.url, form), logs) for client, environment in ready]
            outcomes.append(requests_left(server.url))
            code = server.stop()
    except NotReadyError as error:
        return [Outcome("server: start", str(error), False)]
    return [*outcomes, Outcome("server: exit code", f"{code} after SIGTERM", code == 0)]


def requests_left(url: str) -> Outcome:
    """Clients left streams early: nothing of theirs may still run."""
    name = "server: requests left"
    try:
        left = running_requests(url)
    except OSError as error:
        return Outcome(name, f"the server does not answer: {error}", False)
    return Outcome(name, f"{left} after the last client", left == 0)


def run(client: Client, environment: Environment, told: dict[str, str], logs: Path) -> Outcome:
    """One client's tests, in a session of their own that is killed at the time limit."""
    print(f"== {client.name}: {', '.join(environment.versions)}", flush=True)
    log, began = logs / f"{client.name}.log", time.monotonic()
    with (
        log.open("w") as file,
        subprocess.Popen(
            environment.test_command,
            cwd=HERE,
            env=clean_environment() | told,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            code: int | None = process.wait(TIME_LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            code = None
    lines = log.read_text(errors="replace").splitlines()
    for line in filter(NOTABLE.match, lines):
        print(f"   {line.strip()[:200]}", flush=True)
    said = ", ".join(line.strip("=# ") for line in lines if COUNT.search(line) and not NOTABLE.match(line))
    if code is None:
        said = f"no end after {TIME_LIMIT:.0f} s"
    return Outcome(client.name, f"{said or f'exit code {code}'}  ({log})", code == 0, time.monotonic() - began)


def summarise(outcomes: list[Outcome]) -> int:
    print("\n== summary")
    for outcome in outcomes:
        print(f"{outcome.name:<40}{outcome.seconds:5.0f} s  {outcome.said}")
    bad = [outcome.name for outcome in outcomes if not outcome.good]
    print(f"== failed: {', '.join(bad)}" if bad else "== all passed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
