"""A server with the plugins that have routes or fields of requests of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server_process import ServerProcess, serve_command

if TYPE_CHECKING:
    from pathlib import Path


def server_with_plugins(model: Path, folder: Path, *flags: str) -> ServerProcess:
    """With n-gram drafts, adapters of the folder and structured output."""
    plugins = ("--plugin", "ngram", "--plugin", "lora", "--plugin", "grammar", "--set", f"lora.root={folder}")
    return ServerProcess(serve_command(model, "--threads", "1", *plugins, *flags), folder / "server.log")
