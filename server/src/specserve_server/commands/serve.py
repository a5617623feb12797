"""`specserve serve`: an HTTP server over one engine. Owns its flags; imports the server only when it runs."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from specserve.announcements import announce
from specserve_server.app.json_lines import announce_in_json, convert_handlers_of_libraries, is_in_json
from specserve_server.cli.flag_groups import FlagGroups
from specserve_server.cli.flags import add_grouped_engine_flags
from specserve_server.cli.progress import SECONDS_BETWEEN_LINES, shown_progress
from specserve_server.commands.layers import load_configuration
from specserve_server.commands.server_flags import add_server_flags

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Iterator, Mapping

    from specserve.config import EngineConfig
    from specserve.engine.async_engine import AsyncEngine
    from specserve_checks.json_types import JsonValue
    from specserve_server.load_progress import LoadProgress


EXAMPLES = (
    ("specserve serve", "serve the demo model on http://127.0.0.1:8000"),
    ("specserve serve DIR --plugin ngram", "serve a model with n-gram drafts"),
)
GROUPS = ("network", "security", "limits", "logging", "model", "engine", "plugins")
"""The subjects of flags, in the order of --help."""


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser("serve", help="serve a model over HTTP", description="Serve a model over HTTP.")
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="a directory, a known name or a hub id; default: demo"
    )
    groups = FlagGroups(parser)
    for title in GROUPS:
        groups[title]
    add_server_flags(groups)
    add_grouped_engine_flags(groups)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    if args.log_format == "json":
        announce_in_json()  # what is wrong with the configuration, too
    configuration = load_configuration(args)
    if configuration.server.log_format == "json":
        announce_in_json()
    from specserve.engine.before_loading import check_before_loading  # not for --help, as the next ones

    check_before_loading(configuration.engine)
    from specserve_server.templates.before_loading import check_template

    check_template(configuration.engine, configuration.server.chat_template)
    from specserve_server.app.log_lines import log_to_stderr
    from specserve_server.app.run import serve

    log_format = configuration.server.log_format
    log_to_stderr(configuration.server.log_level, log_format)
    trace_crashes()
    progress = shown_progress(lines=log_format == "json")
    return asyncio.run(serve(lambda: start_engine(configuration.engine, progress), configuration.server, progress))


def trace_crashes() -> None:
    """Where native code ends the process (a segmentation fault, an abort), standard error gets a line `Fatal Python
    error: ...` and the stack of every thread. PYTHONFAULTHANDLER or -X faulthandler, where set, did so already."""
    if not faulthandler.is_enabled() and sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)


async def start_engine(config: EngineConfig, progress: LoadProgress) -> AsyncEngine:
    """Load it, then tell what was chosen."""
    from specserve.engine.async_engine import AsyncEngine  # not for --help
    from specserve_server.cli.draft_trace import trace_if_asked

    repeating = asyncio.create_task(repeat(progress))
    try:
        with left_out_by_the_garbage_collector():
            engine = await AsyncEngine.start(config, on_progress=progress)
    finally:
        repeating.cancel()
    trace_if_asked(engine.engine)
    if is_in_json():
        convert_handlers_of_libraries()  # of those that were imported meanwhile
    for line in (f"loaded in {progress.seconds:.1f} s", *banner(engine.describe()), *engine.plugins.banner()):
        announce(line)
    return engine


@contextmanager
def left_out_by_the_garbage_collector() -> Iterator[None]:
    """What is loaded inside stays to the process's end: 200,000 objects, most of them torch's. Loading then takes less
    time, and no later collection visits them, which would hold up all streams for a tenth of a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


async def repeat(progress: LoadProgress) -> None:
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_LINES)
        progress.repeat()


def banner(description: Mapping[str, JsonValue]) -> list[str]:
    """One line for each choice; the full configuration is in /v1/plugins."""
    return [f"{key} = {plain_text(value)}" for key, value in description.items() if key != "config"]


def plain_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
