"""The page's modules that need no browser, in node: a program that imports one, and what it returned."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest

import specserve_page

STATIC = Path(specserve_page.__file__).parent / "static"
needs_node = pytest.mark.skipif(which("node") is None, reason="there is no node to run the page's modules in")


def call(module: str, body: str, *arguments: object) -> Any:
    """What `body` returns: an async function's, with the module as `m` and the arguments as `a`."""
    program = f"""
const m = await import({json.dumps((STATIC / module).as_uri())});
const a = JSON.parse({json.dumps(json.dumps(arguments))});
const returned = await (async () => {{ {body} }})();
process.stdout.write(JSON.stringify(returned ?? null));
"""
    command = ["node", "--no-warnings", "--experimental-default-type=module", "--input-type=module", "-"]
    ended = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
