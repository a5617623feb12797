"""What is made of a run: the table or JSON, a file with its records, and the exit code."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from specserve.command.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED
from specserve_bench.client.records import RequestRecord
from specserve_bench.figures.summary import Acceptance, Summary, summarise
from specserve_bench.output.files import write_file
from specserve_bench.output.table import console
from specserve_bench.serve.present import print_summary
from specserve_bench.serve.settings import Settings

if TYPE_CHECKING:
    from argparse import Namespace

    from specserve_bench.load.run import Run
    from specserve_bench.serve.measure import Measured

MAX_SHOWN_FAILURES = 5


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What --json prints; the file of --out has the records, too."""

    url: str
    model: str
    ended: str
    """UTC, ISO 8601."""
    interrupted: bool
    settings: Settings
    summary: Summary
    records: list[RequestRecord] | None = None


def finish(args: Namespace, url: str, settings: Settings, measured: Measured) -> int:
    result = result_of(url, settings, measured)
    title = f"{url}, {result.model}{f'; {partial(measured.run)}' if measured.run.interrupted else ''}"
    if args.out:
        write_file(args.out, formatted(msgspec.structs.replace(result, records=measured.run.records)))
    if args.report:
        from specserve_bench.serve.report import report  # it needs matplotlib

        write_file(args.report, report(title, settings, result.summary, measured.run.records))
    if args.json:
        sys.stdout.write(formatted(result))
    else:
        print_summary(title, result.summary)
        print_failures(measured.run.records)
    if measured.run.interrupted:
        print(f"specserve: interrupted: {partial(measured.run)}.", file=sys.stderr)
        return EXIT_INTERRUPTED
    return EXIT_FAILED if result.summary.failures else 0


def partial(run: Run) -> str:
    """How much of a run that was interrupted is there."""
    return f"partial, {len(run.records)} of {run.num_wanted} requests"


def result_of(url: str, settings: Settings, measured: Measured) -> Result:
    summary = summarise(measured.run.records, measured.run.seconds, settings.objectives)
    if summary.acceptance is None and measured.drafted:
        drafted = {name: Acceptance(drafted=n.drafted, accepted=n.accepted) for name, n in measured.drafted.items()}
        summary = msgspec.structs.replace(summary, acceptance=drafted)
    return Result(
        url=url,
        model=measured.model,
        ended=datetime.now(UTC).isoformat(timespec="seconds"),
        interrupted=measured.run.interrupted,
        settings=settings,
        summary=summary,
    )


def formatted(result: Result) -> str:
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode() + "\n"


def print_failures(records: list[RequestRecord]) -> None:
    """One message of each kind of failure."""
    firsts = {record.failure.kind: record.failure.message for record in reversed(records) if record.failure}
    for kind, message in list(firsts.items())[:MAX_SHOWN_FAILURES]:
        console().print(f"{kind}: {message}")
