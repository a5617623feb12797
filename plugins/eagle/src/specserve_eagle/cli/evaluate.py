"""`specserve-eagle eval`: what a draft model accepts on held-out text, by draft position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_eagle.cli.figures import print_acceptance

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Iterator

    from specserve_eagle.training.evaluate import Acceptance
    from specserve_eagle.training.options import EvalOptions


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "eval",
        help="measure what a draft model accepts",
        description="Measure what a draft model accepts on held-out text, by draft position. Teacher-forced: how often "
        "it agrees with the target on the text itself.",
    )
    parser.add_argument("--target", required=True, metavar="MODEL", help="a directory, a known name or a hub id")
    parser.add_argument("--head", required=True, metavar="MODEL", help="the draft model, named likewise")
    parser.add_argument("--data", required=True, nargs="+", metavar="FILE_OR_GLOB", help="UTF-8 text, not trained on")
    parser.add_argument("--temperature", type=float, default=0.0, help="default: 0, greedy")
    parser.add_argument("--steps", type=int, default=3, help="draft tokens; default: 3")
    parser.add_argument("--length", type=int, default=512, help="tokens per window; default: 512")
    parser.add_argument("--batch", type=int, default=8, help="windows at once; default: 8")
    parser.add_argument("--windows", type=int, default=64, help="windows at most, from all over the text; default: 64")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    parser.add_argument("--threads", type=int, help="CPU threads; default: torch's")
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    from specserve_eagle.training.options import EvalOptions  # torch: not for --help

    given = {name: getattr(args, name) for name in EvalOptions.__struct_fields__}
    options = EvalOptions(**(given | {"data": tuple(args.data)}))
    for acceptance in figures(options):
        print_acceptance(acceptance, options.temperature)
    return 0


def figures(options: EvalOptions) -> Iterator[Acceptance]:
    """Every way in which acceptance is measured. Another one, such as while the target generates, is one more line."""
    from specserve_eagle.training.evaluate import Sampling, teacher_forced
    from specserve_eagle.training.evaluation_inputs import evaluation_inputs

    module, target, windows = evaluation_inputs(options)
    yield teacher_forced(module, target, windows, Sampling(options.steps, options.temperature), options.batch)
