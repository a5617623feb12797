"""README.md against what it describes: commands, links, make targets."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from specserve_server.bodies.requests import CompletionBody
from specserve_server.cli import build_parser
from specserve_server.wire.decode_body import decode_body

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)
    for block in re.findall(r"^```sh\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


def commands(program: str) -> list[list[str]]:
    found = [words[1:] for words in COMMANDS if words[0] == program]
    assert found
    return found


def test_every_command_is_checked_here() -> None:
    assert {words[0] for words in COMMANDS} == {"make", "curl", "pip", "specserve"}


@pytest.mark.parametrize("arguments", commands("specserve"), ids=" ".join)
def test_the_command_line_takes_what_is_shown(arguments: list[str]) -> None:
    build_parser().parse_args(arguments)


def test_the_command_without_a_server_prints_a_completion() -> None:
    (arguments,) = [arguments for arguments in commands("specserve") if arguments[0] == "generate"]
    call = [sys.executable, "-m", "specserve", *arguments]
    ended = subprocess.run([*call, "--threads", "1"], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout.strip()
    assert "40 tokens in " in ended.stderr


def test_the_server_takes_the_body_that_is_shown() -> None:
    (arguments,) = commands("curl")
    body = decode_body(arguments[arguments.index("-d") + 1].encode(), CompletionBody)
    assert (body.stream, body.max_tokens) == (True, 40)


def test_distributions_to_install_exist() -> None:
    for paths in commands("pip"):
        assert all((ROOT / path / "pyproject.toml").is_file() for path in paths[1:])


def test_make_targets_and_links_exist() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert set(re.findall(r"(?:^|`)make ([\w-]+)", README, flags=re.MULTILINE)) <= set(targets)
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README)]
    assert all((ROOT / link).is_file() for link in links)
