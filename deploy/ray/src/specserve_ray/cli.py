"""The command specserve-ray."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from specserve.announcements import announce, announce_failure
from specserve.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType

    from specserve_ray.config import Configuration

LOGS = "/tmp/ray/session_latest/logs/serve"
TOKEN = "A cluster that wants a token is joined at its address with RAY_AUTH_MODE=token."


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 2 for a wrong configuration, 1 where Ray gives up."""
    args = make_parser().parse_args(arguments)
    from specserve_ray.config_file import read_configuration  # not for --help

    try:
        run: Callable[[Configuration], int] = args.run
        return run(read_configuration(args.config))
    except ConfigError as error:
        announce_failure(str(error))
        return 2
    except (RuntimeError, ConnectionError) as error:  # of Ray
        announce_failure(f"Ray: {str(error).rstrip('.')}. Its logs may say why: {LOGS}. {TOKEN}")
        return 1


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="specserve-ray", description="Serve a model on a Ray cluster.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add(commands, "up", up, "serve until Ctrl-C, in a cluster of this machine or in a running one")
    add(commands, "update", update, "replace the application of a running cluster, one replica after the other")
    add(commands, "status", status, "the replicas of an application in a running cluster, by state")
    add(commands, "down", down, "end the application of a running cluster")
    return parser


def add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    run: Callable[[Configuration], int],
    what: str,
) -> None:
    command = commands.add_parser(name, help=what, description=what)
    command.add_argument("config", metavar="CONFIG.toml", type=Path, help="[engine], [server], [plugins.NAME], [ray]")
    command.set_defaults(run=run)


def up(configuration: Configuration) -> int:
    """Until a signal. What was started here ends with it."""
    from specserve_ray.cluster import (  # Ray takes seconds
        NEW_CLUSTER,
        cluster_address,
        deploy,
        find_port,
        joined,
        remove,
    )

    server, cluster = configuration.server, configuration.ray.address or NEW_CLUSTER
    if cluster == NEW_CLUSTER:
        check_here(configuration)
        configuration = replace(configuration, server=replace(server, port=find_port(server.host, server.port)))
    with joined(cluster, shows_logs=server.log_level == "debug"):
        for number in (signal.SIGINT, signal.SIGTERM):  # Ray has set its own; a job in the background ignores SIGINT
            signal.signal(number, interrupt)
        try:
            deploy(configuration)
            announce(f"the cluster is at {cluster_address()}, for update, status and down")
            print(f"specserve: ready on {address_of(configuration)}", flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            announce("stopping")
        finally:
            remove(configuration.ray.name)
    return 0


def check_here(configuration: Configuration) -> None:
    """What replicas on this machine would refuse after seconds, and Ray would try again. Raises ConfigError."""
    from specserve.engine.before_loading import check_before_loading  # torch
    from specserve_server.templates.before_loading import check_template

    check_before_loading(configuration.engine)
    check_template(configuration.engine, configuration.server.chat_template)


def update(configuration: Configuration) -> int:
    from specserve_ray.cluster import THIS_CLUSTER, deploy, joined

    with joined(configuration.ray.address or THIS_CLUSTER):
        deploy(configuration)
    print(f"specserve: updated on {address_of(configuration)}", flush=True)
    return 0


def down(configuration: Configuration) -> int:
    from specserve_ray.cluster import THIS_CLUSTER, joined, remove

    with joined(configuration.ray.address or THIS_CLUSTER):
        remove(configuration.ray.name)
    return 0


def status(configuration: Configuration) -> int:
    """1 unless the application is running."""
    from specserve_ray.cluster import THIS_CLUSTER, joined, read_status

    with joined(configuration.ray.address or THIS_CLUSTER):
        found = read_status(configuration.ray.name)
    print(*found.lines, sep="\n")
    return 0 if found.is_running else 1


def interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def address_of(configuration: Configuration) -> str:
    server = configuration.server
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"http://{host}:{server.port}{server.root_path}"
