"""The clients' environments under build/clients: a virtual environment or a node_modules for each.

Owns what is installed where. A finished environment holds its recipe in a stamp: the same recipe is not installed
again, a changed one replaces the environment. vLLM's client is that of build/peers, which `make bench-peers` makes and
which takes gigabytes: without it this client runs only where it is named. Standard library only.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "clients"
MAKE_PEERS = HERE.parents[1] / "benchmarks" / "peers" / "make_peers.py"
PEERS = HERE.parents[1] / "build" / "peers"
PYTEST = "pytest==9.2.0"


class InstallError(Exception):
    """An environment could not be made; the message says what failed."""


class Client(NamedTuple):
    """`recipe` is python/NAME.txt, a file of requirements, or node/NAME/package.json; versions are pinned. That of a
    peer is the program that makes it."""

    name: str
    recipe: Path

    @property
    def is_peer(self) -> bool:
        return self.recipe == MAKE_PEERS

    @property
    def is_due(self) -> bool:
        """Whether it runs where no client is named."""
        return not self.is_peer or (PEERS / self.name / ".made").exists()

    @property
    def versions(self) -> tuple[str, ...]:
        """`openai==3.57.0` and so on, as they stand in the recipe."""
        if self.is_peer:
            return (f"bench serve of {self.name} in {PEERS / self.name}",)
        text = self.recipe.read_text(encoding="utf-8")
        if self.recipe.suffix == ".json":
            return tuple(f"{name}@{version}" for name, version in json.loads(text)["dependencies"].items())
        return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


class Environment(NamedTuple):
    """Where a client is installed, and the command that runs its tests there."""

    folder: Path
    versions: tuple[str, ...]
    test_command: tuple[str, ...]


def find_clients() -> dict[str, Client]:
    python = [Client(path.stem, path) for path in sorted((HERE / "python").glob("*.txt"))]
    node = [Client(f"node-{path.parent.name}", path) for path in sorted((HERE / "node").glob("*/package.json"))]
    return {client.name: client for client in (*python, *node, Client("vllm", MAKE_PEERS))}


CLIENTS = find_clients()


def make(client: Client) -> Environment:
    """The client's environment, installed unless it is there already. InstallError where that fails."""
    if client.is_peer:
        return make_peer(client)
    folder = BUILD / client.name
    stamp = folder / ".made"
    is_node = client.recipe.suffix == ".json"
    wanted = f"{sys.version if not is_node else 'node'}\n{PYTEST}\n{client.recipe.read_text(encoding='utf-8')}"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        print(f"== installing {', '.join(client.versions)} into {folder}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        (install_node if is_node else install_python)(folder, client)
        stamp.write_text(wanted, encoding="utf-8")
    return Environment(folder, client.versions, (node_tests if is_node else python_tests)(folder, client))


def make_peer(client: Client) -> Environment:
    """Its tests run in this Python, which has specserve, and start its program in the environment."""
    if not client.is_due:
        print(f"== installing {client.name} into {PEERS / client.name}", flush=True)
        run(sys.executable, str(MAKE_PEERS), client.name)
    tests = HERE / "bench" / f"test_beside_{client.name}.py"
    pytest = (sys.executable, "-m", "pytest", "-p", "no:asyncio", "-c", str(HERE / "pytest.ini"))
    command = (*pytest, "-q", "-s", str(tests))
    return Environment(PEERS / client.name, client.versions, command)


def install_python(folder: Path, client: Client) -> None:
    run(sys.executable, "-m", "venv", str(folder))
    pip = (str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "-q", PYTEST, "-r", str(client.recipe))


def python_tests(folder: Path, client: Client) -> tuple[str, ...]:
    tests = HERE / "python" / f"test_{client.name}.py"
    return (str(folder / "bin" / "python"), "-m", "pytest", "-c", str(HERE / "pytest.ini"), "-q", str(tests))


def install_node(folder: Path, client: Client) -> None:
    if shutil.which("npm") is None:
        raise InstallError("npm is not on the PATH")
    folder.mkdir(parents=True)
    shutil.copy(client.recipe, folder)
    run("npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder))


def node_tests(folder: Path, client: Client) -> tuple[str, ...]:
    """node looks for packages beside the file that imports them, so that the tests are copied there."""
    for source in (HERE / "node" / "server.mjs", *client.recipe.parent.glob("*.mjs")):
        shutil.copy(source, folder)
    tests = sorted(str(path) for path in folder.glob("*.test.mjs"))
    return ("node", "--test", "--test-reporter=tap", *tests)


def clean_environment() -> dict[str, str]:
    """Without the paths of this Python, and without keys and addresses that the user set for clients of their own."""
    foreign = ("PYTHON", "OPENAI_", "ANTHROPIC_", "LITELLM_", "LANGCHAIN_", "LANGSMITH_", "LLM_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def run(*command: str) -> None:
    ended = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, check=False)
    if ended.returncode:
        lines = (ended.stderr or ended.stdout).strip().splitlines() or ["it said nothing"]
        raise InstallError(f"{' '.join(command)} ended with exit code {ended.returncode}: {lines[-1][:300]}")
