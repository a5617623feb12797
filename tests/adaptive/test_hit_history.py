"""How many right draft tokens are expected of a drafter."""

from __future__ import annotations

from math import inf

import pytest

from specserve_adaptive.hit_history import DECAY, FIRST_DRAFTS, MEAN_RATE, PRIOR_WEIGHT, HitHistory


def scored(*hits, request="other"):
    history = HitHistory()
    for each in hits:
        history.add(request, each, 1)
    return history


def test_a_new_drafter_is_expected_to_win_whatever_its_first_drafts_were():
    history = HitHistory()
    for _ in range(FIRST_DRAFTS):
        assert history.expected("a") == inf
        history.add("a", 0.0, 1)
    assert history.expected("a") == 0.0


def test_of_a_new_request_the_mean_over_all_others_is_expected():
    assert scored(1, 2, 3, 6).expected("new") == pytest.approx(3.0)


def test_early_drafts_count_alike_and_later_ones_move_the_mean_slowly():
    history = scored(*[2.0] * 100)
    assert history.mean == pytest.approx(2.0)
    history.add("other", 7.0, 1)
    assert history.mean == pytest.approx(2.0 + MEAN_RATE * 5.0)


def test_a_requests_own_drafts_outweigh_the_prior():
    history = scored(*[4.0] * 10)
    for _ in range(3):
        history.add("a", 0.0, 1)
    drafts = 1 + DECAY + DECAY**2
    assert history.expected("a") == pytest.approx(PRIOR_WEIGHT * history.mean / (PRIOR_WEIGHT + drafts))
    assert history.expected("a") < history.expected("new") / 2


def test_a_requests_newer_drafts_count_more_than_its_older_ones():
    better, worse = scored(*[2.0] * 50), scored(*[2.0] * 50)
    for history, hits in ((better, (0.0, 4.0)), (worse, (4.0, 0.0))):
        for each in hits:
            history.add("a", each, 1)
    assert better.expected("a") > worse.expected("a")


def test_a_forgotten_request_is_like_a_new_one_and_the_mean_stays():
    history = scored(*[3.0] * 8)
    history.add("a", 0.0, 1)
    mean = history.mean
    history.forget("a")
    history.forget("unknown")
    assert history.expected("a") == history.expected("new") == mean == history.mean
    assert "a" not in history.of_request


def test_how_many_draft_tokens_of_a_draft_are_verified_is_a_moving_average():
    history = HitHistory()
    for verified in (0, 4):
        history.add("a", 0.0, verified)
    assert history.mean_verified == pytest.approx(2.0)
    for _ in range(500):
        history.add("b", 0.0, 1)
    assert history.mean_verified == pytest.approx(1.0, rel=0.01)
