"""The flags of `specserve bench model`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_bench.given.numbers import positive

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

DESCRIPTION = """\
Say what a step of a model takes at the least on this machine, and whether memory or arithmetic bounds it. Nothing is
loaded: the machine is measured, the model's sizes are read. All flags of `specserve serve` for the engine apply.
"""


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser("model", help="what bounds a model on this machine", description=DESCRIPTION)
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help="a directory, a known name or a hub id; default: demo"
    )
    group = parser.add_argument_group("model")
    group.add_argument(
        "--concurrency", nargs="+", type=positive, default=[1, 8, 32], metavar="N",
        help="requests at once; default: 1 8 32",
    )  # fmt: skip
    group.add_argument(
        "--context", type=positive, default=512, metavar="N", help="tokens of each request in the cache; default: 512"
    )
    group.add_argument("--json", action="store_true", help="print JSON")
    from specserve_server.cli.flags import add_engine_flags  # who registers a command has it

    add_engine_flags(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    import torch

    from specserve_bench.roofline.examine import examine
    from specserve_bench.roofline.machine import measure_machine
    from specserve_bench.roofline.present import Found, print_found, to_json
    from specserve_server.cli.layers import load_engine_config

    config = load_engine_config(args)
    examined = examine(config)
    machine = measure_machine(getattr(torch, examined.dtype), examined.threads)
    found = Found(config.model, examined, machine, args.context, args.concurrency)
    if args.json:
        print(to_json(found))
    else:
        print_found(found)
    return 0
