"""`python -m fuzz`: see docs/testing.md. Exit code 1 where a trial failed or a kind of trial was never reached."""

from __future__ import annotations

import argparse
import gc
import itertools
import logging
import sys
from pathlib import Path

import torch

from fuzz.campaign import Campaign
from fuzz.plans import describe, load
from fuzz.trial import run_trial


def main() -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long new trials are begun")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trial", type=int, help="this one trial of the seed only")
    parser.add_argument("--replay", type=Path, help="a saved case in place of new trials")
    parser.add_argument("--times", type=int, default=1, help="how often it is replayed")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="where cases are saved")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)  # invalid drafts make the engine log thousands of lines
    torch.set_num_threads(1)
    gc.freeze()  # a collection after every trial need not look at what was imported
    if arguments.replay is not None:
        return replay(arguments.replay, arguments.times)
    campaign = Campaign(arguments.seed, arguments.folder, say=say)
    if arguments.trial is not None:
        campaign.run([arguments.trial])
        return 1 if campaign.found else 0
    campaign.run(itertools.count(), arguments.seconds)
    return 0 if campaign.passed() else 1


def replay(file: Path, times: int) -> int:
    """A case that depends on the clock may need several."""
    plan = load(file)
    say(describe(plan))
    failures = [failure for _ in range(times) if (failure := run_trial(plan).failure) is not None]
    for failure in failures:
        say(f"FAILED: {failure}")
    say(f"{len(failures)} of {times} failed")
    return 1 if failures else 0


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
