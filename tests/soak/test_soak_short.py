"""A short soak of a right server finds nothing; one of a server with a planted fault finds that fault."""

from __future__ import annotations

import asyncio

import pytest

from soak.broken import FAULTS
from soak.campaign import Table, soak
from soak.ledger import Ledger
from soak.setting import toy_setting

SEED, SECONDS, BROKEN_SECONDS = 1, 16, 6
FOUND_AS = {"a_wrong_token": "wrong", "a_lost_block": "leaked", "an_open_file": "leaked", "a_lost_event": "lost"}


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    return toy_setting(tmp_path_factory.mktemp("soak"), num_cases=44)


@pytest.fixture(scope="module")
def table(setting):
    return asyncio.run(Table.make(setting, SEED))


def test_a_short_soak_finds_nothing_and_reaches_everything(setting, table):
    report = asyncio.run(soak(setting, SEED, SECONDS, table))
    assert report.passed, "\n".join(report.lines())
    assert report.ledger.outcomes["answers compared"] > 100


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(setting, table, fault):
    report = asyncio.run(soak(setting._replace(module=("soak.broken", fault)), SEED, BROKEN_SECONDS, table))
    assert FOUND_AS[fault] in report.ledger.failures, "\n".join(report.lines())
