"""What drafters and observers get of a step: logits that nobody has overwritten, and the length that is left."""

from __future__ import annotations

import pytest
import torch
from competing_cases import EveryoneProposes, composed_by, plugin

from specserve.command.generation_stats import GenerationStats
from specserve.protocols import DrafterNeeds, Metric
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import DrafterStats, SpeculationStats
from specserve_workbench.testing.drafters import NoisyDrafter, OracleDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run, run_requests, watch
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests


class Overwriting(OracleDrafter):
    """Its passes leave nothing of the logits, as a draft model's may."""

    name = "overwriting"

    def propose(self, batch, output, verdict, limits):
        with torch.inference_mode():
            output.logits.fill_(float("nan"))
        return super().propose(batch, output, verdict, limits)


class Reading(OracleDrafter):
    """Keeps the best token of every scored row."""

    name = "reading"

    def __init__(self, outputs, width, **needs):
        super().__init__(outputs, width)
        self.needs, self.read = DrafterNeeds(**needs), {}

    def propose(self, batch, output, verdict, limits):
        keep_best(self.read, batch, output)
        return super().propose(batch, output, verdict, limits)


class ReadingObserver:
    def __init__(self):
        self.read = {}

    def observe(self, batch, verdict, output):
        keep_best(self.read, batch, output)

    def metrics(self):
        return []


class PlainObserver(ReadingObserver):
    def observe(self, batch, verdict):
        self.read[len(self.read)] = len(verdict.spans)


class OnlyMetrics:
    observe = None

    def metrics(self):
        return [Metric("mine", "Mine.", "gauge", 1.0)]


def keep_best(kept, batch, output):
    """The best token behind each accepted token: what greedy requests choose."""
    best = output.logits.argmax(dim=1).tolist()
    for span, first in zip(batch.spans, batch.scored_offsets, strict=True):
        if span.scored:
            kept.setdefault(span.request.id, []).append(best[first])


def engine_with(model, *drafters):
    planner = composed_by(EveryoneProposes(), 8)
    extra = {drafter.name: plugin(drafter, planner if drafter is drafters[0] else None) for drafter in drafters}
    return make_engine(model, extra=extra).engine


@pytest.mark.parametrize("needs", [{}, {"logits": True, "target_rows": 3}], ids=str)
@pytest.mark.parametrize("reader_is_first", [True, False])
def test_a_drafter_that_reads_logits_is_asked_before_others_overwrite_them(toy_model, reader_is_first, needs):
    """Also before one that reads them itself and computes with the target then."""
    requests = [toy_request(str(i), range(1, 9 + i), max_tokens=40, ignore_eos=True) for i in range(3)]
    expected = plain_run(toy_model, requests).tokens()
    overwriting, reading = Overwriting(expected, 2), Reading(expected, 1, logits=True)
    overwriting.needs = DrafterNeeds(**needs)
    drafters = (reading, overwriting) if reader_is_first else (overwriting, reading)
    outcome = run_requests(engine_with(toy_model, *drafters), requests)
    assert outcome.tokens() == expected
    assert_first_choices(reading.read, outcome)
    assert not outcome.metrics.drafter_faults
    assert outcome.metrics.draft_tokens_by_drafter["overwriting"] > 20


def assert_first_choices(read, outcome):
    for request_id, output in outcome.outputs.items():
        assert read[request_id] == [step.tokens[0] for step in output.steps]


@pytest.mark.parametrize("needs", [{"logits": True}, {"every_step": True}], ids=str)
def test_whoever_needs_anything_hears_every_step(toy_model, needs):
    request = toy_request("a", (1, 2, 3), max_tokens=8, ignore_eos=True)
    reading = Reading({"a": ()}, 1, **needs)
    outcome = run_requests(make_engine(toy_model, reading, planner=FixedWidthPlanner(0)).engine, [request])
    assert_first_choices(reading.read, outcome)


def test_an_observer_may_read_logits_that_no_drafter_has_overwritten(toy_model):
    requests = [toy_request(str(i), range(1, 9 + i), max_tokens=40, ignore_eos=True) for i in range(3)]
    expected = plain_run(toy_model, requests).tokens()
    reading, plain = ReadingObserver(), PlainObserver()
    engine = make_engine(toy_model, Overwriting(expected, 3)).engine
    watch(engine, reading)
    watch(engine, plain)
    outcome = run_requests(engine, requests)
    assert not outcome.metrics.faults.counts
    assert not outcome.metrics.drafter_faults
    assert_first_choices(reading.read, outcome)
    assert len(plain.read) == outcome.metrics.num_steps


def test_figures_of_each_drafter_add_up_to_the_requests(toy_model):
    requests = varied_requests(12)
    expected = plain_run(toy_model, requests).tokens()
    noisy = NoisyDrafter(expected, p=0.7, max_width=6, vocab_size=TOY_VOCAB)
    outcome = run_requests(engine_with(toy_model, noisy, OracleDrafter(expected, 2)), requests)
    names = set()
    for output in outcome.outputs.values():
        figures = output.steps[-1].stats
        names |= figures.by_drafter.keys()
        drafted, accepted = map(sum, zip(*figures.by_drafter.values(), strict=True)) if figures.by_drafter else (0, 0)
        assert (drafted, accepted) == (figures.num_draft_tokens, figures.num_accepted_draft_tokens)
    assert names == {"noisy", "oracle"}


def test_a_summary_names_several_drafters():
    figures = SpeculationStats(4, 9, 5, (), None, {"ngram": DrafterStats(3, 2), "eagle": DrafterStats(6, 3)})
    summary = GenerationStats(0.0, speculation=figures).summary()
    assert summary.endswith("5 of 9 draft tokens accepted; eagle 3 of 6; ngram 2 of 3")
    alone = SpeculationStats(4, 9, 5, (), None, {"ngram": DrafterStats(9, 5)})
    assert GenerationStats(0.0, speculation=alone).summary().endswith("5 of 9 draft tokens accepted")


def test_a_request_says_how_deep_a_draft_may_be(toy_model):
    depths = []

    class Deep(OracleDrafter):
        def draft(self, request, limit):
            depths.append((request.num_generated, request.max_depth))
            return None

    request = toy_request("a", (1, 2, 3), max_tokens=6, ignore_eos=True)
    run(toy_model, [request], Deep({"a": ()}, 4))
    assert depths == [(1, 4), (2, 3), (3, 2), (4, 1)]  # the last token comes without a draft


def test_an_observer_for_its_metrics_alone_is_called_by_no_step(toy_model):
    engine = make_engine(toy_model).engine
    watch(engine, OnlyMetrics())
    outcome = run_requests(engine, [toy_request("a", (1, 2, 3), max_tokens=8)])
    assert not outcome.metrics.faults.counts
    assert [metric.name for metric in engine.observer_metrics()] == ["mine"]
