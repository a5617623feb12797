"""`specserve serve`: an HTTP server over one engine. Owns its flags; imports the server only when it runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from specserve.announcements import announce
from specserve.host_cores import cores_with_time
from specserve_server.app.json_lines import announce_in_json, convert_handlers_of_libraries, is_in_json
from specserve_server.cli.flag_groups import FlagGroups
from specserve_server.cli.flags import add_grouped_engine_flags
from specserve_server.cli.progress import SECONDS_BETWEEN_LINES, shown_progress
from specserve_server.commands.layers import load_configuration
from specserve_server.commands.server_flags import add_server_flags
from specserve_server.engines.load import announcements, load_engine, trace_crashes

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

    from specserve_server.commands.layers import Configuration
    from specserve_server.config import ServerConfig
    from specserve_server.engine_client import LoadedEngine
    from specserve_server.engines.attached import AttachedEngine
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
    from specserve_server.traces.wanted import traces_are_on, why_none_are_sent

    if not traces_are_on(configuration.server) and (reason := why_none_are_sent(configuration.server)):
        announce(reason)
    from specserve_server.app.log_lines import log_to_stderr
    from specserve_server.app.run import serve

    log_format = configuration.server.log_format
    log_to_stderr(configuration.server.log_level, log_format)
    trace_crashes()
    progress = shown_progress(lines=log_format == "json")
    return asyncio.run(serve(lambda: start_engine(configuration, progress), configuration.server, progress))


async def start_engine(configuration: Configuration, progress: LoadProgress) -> LoadedEngine | AttachedEngine:
    """Load it, then tell what was chosen."""
    repeating = asyncio.create_task(repeat(progress))
    engine: LoadedEngine | AttachedEngine
    try:
        if has_engine_process(configuration.server):
            engine, lines = await start_in_a_process(configuration, progress)
        else:
            engine = loaded = await load_engine(configuration.engine, progress)
            lines = tuple(announcements(loaded))
    finally:
        repeating.cancel()
    if is_in_json():
        convert_handlers_of_libraries()  # of those that were imported meanwhile
    for line in (f"loaded in {progress.seconds:.1f} s", *lines):
        announce(line)
    return engine


async def start_in_a_process(
    configuration: Configuration, progress: LoadProgress
) -> tuple[AttachedEngine, tuple[str, ...]]:
    """With the lines that say what was chosen."""
    from specserve_server.engine_process.start import start_engine_process
    from specserve_server.http_process.processes import http_processes

    engine, lines, directory = await start_engine_process(configuration.engine, configuration.server, progress)
    return engine._replace(processes=http_processes(configuration.server, directory)), lines


def has_engine_process(config: ServerConfig) -> bool:
    """On up to two cores the engine's own threads take both."""
    if config.engine_process is None:
        return config.http_processes > 1 or cores_with_time() > 2
    return config.engine_process


async def repeat(progress: LoadProgress) -> None:
    while True:
        await asyncio.sleep(SECONDS_BETWEEN_LINES)
        progress.repeat()
