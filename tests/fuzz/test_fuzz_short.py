"""A fixed short run of the combination fuzzer, and a long one that is new every time it is asked for another seed."""

from __future__ import annotations

import itertools

import pytest

from fuzz.campaign import Campaign
from fuzz.coverage import expected_here

SEED = 1
TRIALS = (
    *(6, 7, 9, 56, 57, 60, 66, 69, 71, 83, 85, 114, 121, 130, 138, 149, 157, 165, 175, 176, 227, 228),
    *(249, 250, 253, 255, 262, 265, 286, 290, 293, 299, 307, 317, 326, 328, 330, 337, 339),
)
"""Those that `python -m fuzz.choose` chose: quick, and together of every kind."""
SURE = 0.02
"""Kinds of a smaller share hang on one trial, and so on the last bits of this processor and on its clock."""
LONG_SEED, LONG_SECONDS = 2, 600


def test_a_short_run_finds_no_difference_and_reaches_every_kind(tmp_path):
    told: list[str] = []
    campaign = Campaign(SEED, tmp_path, say=told.append)
    campaign.run(TRIALS)
    assert not campaign.found, "\n".join(told)
    assert [kind for kind, share in expected_here().items() if share >= SURE and not campaign.kinds[kind]] == []


@pytest.mark.sweep
def test_a_long_run_finds_no_difference_and_reaches_what_it_should(tmp_path):
    told: list[str] = []
    campaign = Campaign(LONG_SEED, tmp_path, say=told.append)
    campaign.run(itertools.count(), LONG_SECONDS)
    assert campaign.passed(), "\n".join(told)
