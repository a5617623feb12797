"""A short soak of a right server finds nothing; one of a server with planted faults finds each.

The first has the engine in a process of its own, the second in the server's, where the faults are planted.
"""

from __future__ import annotations

import asyncio

import pytest

from soak.campaign import Table, soak
from soak.setting import toy_setting

SEED, SECONDS, BROKEN_SECONDS = 1, 10, 6


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return toy_setting(tmp_path_factory.mktemp("soak"), num_cases=44)


@pytest.fixture(scope="module")
def table(setting):
    return asyncio.run(Table.make(setting, SEED))


def test_a_short_soak_finds_nothing_and_reaches_everything(setting, table):
    report = asyncio.run(soak(setting._replace(form="engine-process"), SEED, SECONDS, table))
    assert report.passed, "\n".join(report.lines())
    assert report.after.resources.processes == 2
    assert report.ledger.outcomes["answers compared"] > 100


def test_planted_faults_are_found(setting, table):
    """A wrong token, a lost event and an open file."""
    broken = setting._replace(module="soak.broken", form="no-engine-process")
    report = asyncio.run(soak(broken, SEED, BROKEN_SECONDS, table))
    told = "\n".join(report.lines())
    assert not report.passed
    assert {"wrong", "lost", "leaked"} <= report.ledger.failures.keys(), told
    assert "differs from its reference" in told
    assert "the stream ended without its last event" in told
    assert "leaked: open files that were not open before" in told
    assert list(setting.folder.glob("failure-*.json"))
