"""`specserve bench serve` tells what `vllm bench serve` tells of the same server, within 3 %.

Both measure in turns, the first of a turn changes. What chance does to the server between two runs is no client's
doing: at real servers each run's figures are divided by those of a relay between client and server, which says when
what came over the wire in that run. A paced server does the same in every run, and figures are compared as they are.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import paced_server
import pytest
from two_clients import Figures, Load, Ours, Theirs, start_ours, start_theirs
from witness import Witness

sys.path.append(str(Path(__file__).parents[2]))
from server_process import ServerProcess, serve_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from two_clients import Client

TOLERANCE = 0.03
ROUNDS, PACED_ROUNDS = 9, 5
SMOLLM2 = Path(__file__).parents[3] / "build" / "SmolLM2-135M-Instruct.Q4_1.gguf"
FORM = os.environ["SPECSERVE_FORM"]
PACED = Load(num_requests=24, num_tokens=paced_server.NUM_TOKENS, concurrency=8)


@pytest.fixture(scope="module", params=[{}, {"no_proxy": "127.0.0.1"}], ids=["plain", "with proxies"])
def clients(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Client, Client]]:
    """Ours and theirs. vLLM's looks for a proxy before every request; ours does so where variables tell of proxies."""
    folder = tmp_path_factory.mktemp("clients")
    with start_ours(folder, **request.param) as ours, start_theirs(folder) as theirs:
        yield Ours(ours, folder), Theirs(theirs, folder)


@pytest.fixture(autouse=True)
def _without_the_key_of_other_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECSERVE_API_KEY", raising=False)


def in_turns(
    clients: tuple[Client, Client], num_rounds: int, measure: Callable[[Client], Figures]
) -> list[tuple[Figures, Figures]]:
    """Ours and theirs of each round; the first round is left out."""
    ours, theirs = clients
    rounds = []
    for number in range(num_rounds + 1):
        if number % 2:
            found = measure(ours), measure(theirs)
        else:
            found = tuple(reversed((measure(theirs), measure(ours))))
        rounds.append(found)
    return rounds[1:]


def ratios(rounds: list[tuple[Figures, Figures]]) -> dict[str, list[float]]:
    """Ours by theirs, by round."""
    return {name: [getattr(a, name) / getattr(b, name) for a, b in rounds] for name in Figures._fields}


def show(title: str, found: dict[str, list[float]]) -> None:
    told = (f"{name} {median(each):.3f} ({min(each):.3f} to {max(each):.3f})" for name, each in found.items())
    print(f"\n{title}: ours by theirs, median (range): {', '.join(told)}")


@pytest.mark.parametrize("concurrency", [1, 8])
def test_every_figure_of_a_paced_server_is_theirs(clients, concurrency, tmp_path):
    load = PACED._replace(num_requests=3 * concurrency, concurrency=concurrency)
    with ServerProcess([sys.executable, paced_server.__file__], tmp_path / "server.log") as server:
        rounds = in_turns(clients, PACED_ROUNDS, lambda client: client.measure(server.url, "paced", load))
    found = ratios(rounds)
    show(f"paced, {concurrency} at once", found)
    assert all(abs(median(each) - 1) <= TOLERANCE for each in found.values())
    ours = rounds[0][0]
    whole = paced_server.FIRST + (paced_server.NUM_EVENTS - 1) * paced_server.GAP
    assert ours.ttft == pytest.approx(1000 * paced_server.FIRST, rel=0.1)
    assert ours.e2e == pytest.approx(1000 * whole, rel=0.1)


@pytest.mark.parametrize("clients", [{}], indirect=True, ids=["plain"])
@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("model", ["demo", str(SMOLLM2)], ids=["demo", "smollm2"])
def test_every_figure_of_a_real_server_is_theirs(clients, model, concurrency, tmp_path):
    load = Load(num_requests=12 if concurrency == 1 else 24, num_tokens=64, concurrency=concurrency)
    command = serve_command(model, "--no-prefix-cache", f"--{FORM}")
    with ServerProcess(command, tmp_path / "server.log") as server, Witness(server.url) as witness:
        rounds = in_turns(clients, ROUNDS, lambda client: beside_the_wire(client, witness, model, load))
    found = ratios(rounds)
    show(f"{Path(model).name}, {concurrency} at once, by what came over the wire", found)
    assert median(found["prompt_tokens"]) == 1
    assert all(abs(median(each) - 1) <= TOLERANCE for each in found.values())


def beside_the_wire(client: Client, witness: Witness, model: str, load: Load) -> Figures:
    """A run's figures, each divided by what the relay saw during it; the tokens of the prompts as they are."""
    told = client.measure(witness.url, model, load)
    seen = witness.take(load)
    return told._replace(**{name: getattr(told, name) / value for name, value in seen._asdict().items()})


@pytest.mark.parametrize("clients", [{}], indirect=True, ids=["plain"])
def test_the_relay_tells_the_times_of_a_paced_server(clients, tmp_path):
    ours, _ = clients
    command = [sys.executable, paced_server.__file__]
    with ServerProcess(command, tmp_path / "server.log") as server, Witness(server.url) as witness:
        ours.measure(witness.url, "paced", PACED)
        seen = witness.take(PACED)
    after_first = (paced_server.NUM_EVENTS - 1) * paced_server.GAP
    assert seen.ttft == pytest.approx(1000 * paced_server.FIRST, rel=0.1)
    assert seen.itl == pytest.approx(1000 * paced_server.GAP, rel=0.1)
    assert seen.tpot == pytest.approx(1000 * after_first / (paced_server.NUM_TOKENS - 1), rel=0.1)
    assert seen.e2e == pytest.approx(1000 * (paced_server.FIRST + after_first), rel=0.1)
    turns = PACED.num_requests / PACED.concurrency
    whole = turns * (paced_server.FIRST + after_first + paced_server.END)
    assert seen.tokens_per_second == pytest.approx(PACED.num_requests * PACED.num_tokens / whole, rel=0.1)
