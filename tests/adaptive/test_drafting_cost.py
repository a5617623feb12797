"""What asking takes is learned by requests, passes and what drafters read, from steps in which all of these vary."""

from __future__ import annotations

import random
from array import array

import pytest

from planning_cases import chain, with_draft
from specserve_adaptive._native import Planner

FIXED, MORE, OF_PASS, OF_ROW = 200e-6, 60e-6, 120e-6, 9e-6
FREE = array("d", [1.0] * 65)


def taken(num_drafting, depth, rows):
    return FIXED + MORE * num_drafting**0.75 + OF_PASS * (depth - 1) + OF_ROW * rows


class Asker:
    """Asks for all requests in every step, for drafts of the same depth; their texts grow by what was accepted."""

    def __init__(self, planner, *, tells_passes=True, seed=0):
        self.planner, self.random, self.of_pass = planner, random.Random(seed), OF_PASS if tells_passes else 0.0

    def run(self, num_requests, depth, steps):
        requests = [with_draft(None, name=f"r{num_requests}.{i}", max_tokens=10**6) for i in range(num_requests)]
        grown = num_requests
        for step in range(steps):
            for request in requests:
                request.draft = None
            limits = self.planner.limits(requests, 16, 1.0, 0.0, 1.0)
            assert all(limits), "an accepted draft token saves a second, and asking costs nearly nothing"
            if step:
                seconds = taken(num_requests, depth, grown) * self.random.uniform(0.9, 1.1)
                self.planner.observe_drafting(seconds, num_requests, self.of_pass)
            for request in requests:
                request.draft = chain(*(0.9**level for level in range(1, depth + 1)))
            self.planner.choose(requests, FREE, 64)
            grown = 0
            for request in requests:
                more = self.random.randint(1, depth + 1)
                request.tokens += [1] * more
                grown += more


def test_it_is_learned_by_requests_and_depth():
    planner = Planner("fair", 0.0)
    asker = Asker(planner)
    for num_requests, depth in [(8, 2), (2, 5), (1, 1), (8, 6), (4, 3)] * 3:
        asker.run(num_requests, depth, 20)
    for num_requests, depth in [(1, 1), (1, 6), (4, 1), (8, 1), (8, 4), (8, 8)]:
        assert planner.drafting_cost(num_requests, depth) == pytest.approx(taken(num_requests, depth, 0), rel=0.2)


def test_a_long_time_at_one_depth_does_not_spoil_what_is_known_of_others():
    planner = Planner("fair", 0.0)
    asker = Asker(planner)
    asker.run(8, 1, 60)
    asker.run(8, 7, 400)
    assert planner.drafting_cost(8, 1) == pytest.approx(taken(8, 1, 0), rel=0.25)


def test_of_drafters_that_tell_no_passes_depth_costs_nothing():
    planner = Planner("fair", 0.0)
    Asker(planner, tells_passes=False).run(4, 3, 40)
    assert planner.level_seconds(4) == 0.0
    assert planner.drafting_cost(4, 1) == planner.drafting_cost(4, 9)


def test_what_a_pass_takes_is_taken_from_the_nearest_number_of_requests():
    planner = Planner("fair", 0.0)
    Asker(planner).run(4, 3, 40)
    for num_requests in (1, 3, 5, 64):
        assert planner.level_seconds(num_requests) == pytest.approx(OF_PASS)
