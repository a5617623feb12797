"""The command `specserve bench`, whose parts are commands of their own. Imports what they need only when they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_bench.replay import command as replay
from specserve_bench.roofline import command as roofline
from specserve_bench.serve import command as serve
from specserve_bench.sweep import command as sweep

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction

EXAMPLES = (
    ("specserve bench serve URL", "measure any server with the OpenAI API"),
    ("specserve bench sweep MODEL --plugin ngram", "find the fastest drafters for a model"),
    ("specserve bench replay FILES", "try drafters on your own texts, without a model"),
)
DESCRIPTION = "Measure servers of language models, and the settings of this one."


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser("bench", help="measure servers and settings", description=DESCRIPTION)
    parts = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for part in (serve, sweep, replay, roofline):
        part.register(parts)
