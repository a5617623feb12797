"""A fixed short run of the combination fuzzer, and a long one that is new every time it is asked for another seed."""

from __future__ import annotations

import itertools

import pytest

from fuzz.campaign import Campaign
from fuzz.coverage import expected_here

SEED = 1
TRIALS = (
    *range(10),
    *(46, 48, 54, 55, 56, 57, 126, 127, 140, 143, 147, 159, 191, 196, 203, 207, 209, 253, 255, 256, 257, 259, 262, 263),
    *(265, 270, 279, 282, 283, 284, 288, 290, 291, 293, 294, 296, 299, 340),
)
"""The first ones, and those that `python -m fuzz.choose` chose: quick, and together of every kind."""
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
