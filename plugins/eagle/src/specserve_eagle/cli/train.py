"""`specserve-eagle train`: a draft model for a target, from text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specserve_eagle.cli.figures import print_acceptance

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction

MARKOV = ("vanilla", "gated", "rnn")
HEADS = ("eagle3", "eagle", "mtp", "dflash", "dspark", "standalone", "uno")


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "train",
        help="train a draft model for a target",
        description="Train a draft model against a frozen target, and write it in the format that other engines load.",
    )
    need = parser.add_argument_group("required")
    need.add_argument("--target", required=True, metavar="MODEL", help="a directory, a known name or a hub id")
    need.add_argument("--data", required=True, nargs="+", metavar="FILE_OR_GLOB", help="UTF-8 text to train on")
    need.add_argument("--out", required=True, type=Path, metavar="DIR", help="where the draft model is written")
    need.add_argument("--head", required=True, choices=HEADS, help="the kind of draft model; uno: a draft adapter")
    budget = parser.add_argument_group("budget, one of the two at least")
    budget.add_argument("--minutes", type=float, help="end after this many minutes, preparing and measuring included")
    budget.add_argument("--max-steps", type=int, help="end after this many optimiser steps; --resume counts on")
    add_recipe_flags(parser)
    add_size_flags(parser)
    add_machine_flags(parser)
    parser.add_argument("--resume", action="store_true", help="go on from the last checkpoint in --out")
    parser.set_defaults(run=run)


def add_recipe_flags(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("recipe")
    group.add_argument("--unroll", type=int, default=5, help="steps that a head is unrolled, 3 to 7; default: 5")
    group.add_argument("--length", type=int, default=512, help="tokens per window; default: 512")
    group.add_argument("--batch", type=int, default=8, help="windows per step; default: 8")
    group.add_argument(
        "--reuse", type=int, default=1,
        help="steps that learn from each batch while it is in memory: the target, which takes most of the time, reads "
        "it once; default: 1",
    )  # fmt: skip
    group.add_argument("--anchors", type=int, help="dflash, dspark, uno: blocks per window; default: 64")
    group.add_argument(
        "--mask-token", type=int,
        help="dflash, dspark: the number of the token that stands for those of a block that are not known yet; "
        "default: the last one that the text does not use; uno: random tokens are below this number; default: all",
    )  # fmt: skip
    group.add_argument("--seed", type=int, default=0, help="of the order of windows and of the weights; default: 0")
    group.add_argument(
        "--eval-data", nargs="+", default=(), metavar="FILE_OR_GLOB",
        help="text for the estimate at the end; default: every twentieth window of --data, which is not trained on",
    )  # fmt: skip


def add_size_flags(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("sizes")
    group.add_argument(
        "--draft-vocab", type=int,
        help="tokens that are drafted; default: eagle3: 32000, or all where there are fewer; dspark: all, by the "
        "target's output head",
    )  # fmt: skip
    group.add_argument("--intermediate-size", type=int, help="default: the target's")
    group.add_argument("--layers", type=int, help="standalone, dflash, dspark: number of layers; default: 2")
    group.add_argument("--block-size", type=int, help="dflash, dspark, uno: rows of a block; default: 16, 7, 8")
    group.add_argument("--rank", type=int, help="uno: rank of the adapter; default: 64")
    group.add_argument("--heads", type=int, help="heads of queries of a layer; default: the target's")
    group.add_argument("--kv-heads", type=int, help="heads of keys and values of a layer; default: the target's")
    group.add_argument("--markov", choices=MARKOV, help="dspark: what its Markov head reads; default: vanilla")
    group.add_argument("--markov-rank", type=int, help="dspark: rank of the Markov head's tables; default: 256")
    group.add_argument("--hidden-size", type=int, help="standalone: default: half the target's")
    group.add_argument("--untied", action="store_true", help="standalone: an output head beside the embedding")


def add_machine_flags(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("machine")
    group.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    group.add_argument("--threads", type=int, help="CPU threads; default: torch's")
    group.add_argument("--compile", action="store_true", help="compile the draft model with torch.compile")


def run(args: Namespace) -> int:
    from specserve_eagle.training.run import train
    from specserve_eagle.training.train_options import TrainOptions  # torch: not for --help

    given = {name: getattr(args, name) for name in TrainOptions.__struct_fields__}
    given |= {"data": tuple(args.data), "eval_data": tuple(args.eval_data)}
    acceptance = train(TrainOptions(**given))
    print(f"draft model in {args.out}")
    print_acceptance(acceptance, temperature=0.0)
    return 0
