"""The server that the clients ask: the demo model with ngram, lora and grammar, an API key and a free port.

Standard library only. The clients get the address, the key and the names of the models as environment variables.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from server_process import serve_command

ROOT = Path(__file__).parents[2]
ADAPTER = ROOT / "demo" / "src" / "specserve_demo" / "adapters" / "docstrings"
KEY = "sk-of-the-client-tests"
FLAGS = (
    "--api-key", KEY, "--plugin", "ngram", "--plugin", "grammar",
    "--plugin", "lora", "--set", f"lora.adapters.docstrings={ADAPTER}",
)  # fmt: skip
LEFT_SECONDS = 5.0


def command(form: str) -> list[str]:
    """`form`: of `server_process.FORMS`."""
    return serve_command("demo", *FLAGS, f"--{form}")


def variables(url: str, form: str) -> dict[str, str]:
    """`form`: also of servers that a client's tests start themselves."""
    return {"SPECSERVE_URL": url, "SPECSERVE_API_KEY": KEY, "SPECSERVE_FORM": form}


def running_requests(url: str) -> int:
    """Requests that still run or wait five seconds after the last client has left."""
    deadline = time.monotonic() + LEFT_SECONDS
    while (load := get(f"{url}/load")["server_load"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return int(load)


def get(url: str) -> Any:
    with urlopen(Request(url, headers={"Authorization": f"Bearer {KEY}"}), timeout=10) as answer:
        return json.load(answer)
