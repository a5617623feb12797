"""What was decided and why shows in the metrics, in /v1/plugins and in each answer."""

from __future__ import annotations

from test_adaptive_lossless import adaptive_engine, requests_of

from specserve.engine.description import describe_planner
from specserve_adaptive.step_costs import StepCosts
from specserve_server.cli import main
from specserve_server.generation.speculation_metrics import speculation_metrics
from specserve_workbench.testing.engines import run_requests

REASONS = {
    "verified", "does not pay", "budget", "plain step measured", "no draft", "drafted rarely", "not wanted",
}  # fmt: skip


def samples(engine):
    return {(metric.name, *dict(metric.labels).values()): metric.value for metric in engine.observer_metrics()}


def test_the_metrics_count_every_step_of_every_request(toy_model):
    engine = adaptive_engine(toy_model)
    outcome = run_requests(engine, requests_of())
    found = samples(engine)
    steps = {key[1]: value for key, value in found.items() if key[0] == "specserve_adaptive_request_steps_total"}
    widths = {int(key[1]): value for key, value in found.items() if key[0] == "specserve_adaptive_width_total"}
    assert set(steps) == REASONS
    assert sum(steps.values()) == sum(widths.values())
    # but for what a request's last step decided, and its prompt's
    decided = sum(len(output.steps) for output in outcome.outputs.values())
    assert decided - 2 * len(outcome.outputs) <= sum(steps.values()) <= decided
    assert steps["verified"] == sum(count for width, count in widths.items() if width)
    assert sum(width * count for width, count in widths.items()) == engine.metrics.num_draft_tokens
    assert found["specserve_adaptive_accepted_tokens_total",] == engine.metrics.num_accepted_tokens
    assert found["specserve_adaptive_verified_tokens_total",] == engine.metrics.num_draft_tokens
    assert 0 < found["specserve_adaptive_predicted_accepted_tokens_total",] < engine.metrics.num_draft_tokens
    assert 0 <= found["specserve_adaptive_calibration_error",] < 0.5


def test_costs_show_by_requests_and_draft_tokens(toy_model):
    engine = adaptive_engine(toy_model)
    planner = engine.planner.planner
    planner.costs = planner.regimes.costs = StepCosts([1, 64], [1.0, 1.5])  # it learns again
    run_requests(engine, requests_of())
    found = samples(engine)
    name = "specserve_adaptive_step_cost_seconds"
    sizes = {key[1] for key in found if key[0] == name}
    assert sizes
    assert sizes <= {"1", "2", "4", "8"}, "of each class the fewest requests"
    for requests in sizes:
        seconds = [found[name, requests, str(n)] for n in (0, 1, 2, 4, 8, 16, 32)]
        assert seconds == sorted(seconds)
        assert found["specserve_adaptive_step_cost_error", requests] >= 0


def test_each_answer_says_what_was_decided_for_it(toy_model):
    outcome = run_requests(adaptive_engine(toy_model), requests_of())
    for output in outcome.outputs.values():
        stats = output.steps[-1].stats
        if stats.planner is None:
            assert len(output.steps) == 1, "it ended with its first token"
            continue
        assert set(stats.planner.steps) == REASONS
        assert sum(stats.planner.steps.values()) <= len(output.steps)
    repetitive = outcome.outputs["r0"].steps[-1].stats
    assert repetitive.planner.steps["verified"] > 0
    assert repetitive.planner.predicted_accepted_tokens > 0


def test_an_answer_over_http_sums_over_its_choices(toy_model):
    class Choice:
        def __init__(self, stats):
            self.stats = stats

    outcome = run_requests(adaptive_engine(toy_model), requests_of())
    stats = [outcome.outputs[name].steps[-1].stats for name in ("r0", "r1")]
    told = speculation_metrics([Choice(one) for one in stats]).speculative_decoding.planner
    expected = sum(one.planner.predicted_accepted_tokens for one in stats)
    assert told.predicted_accepted_tokens == expected
    assert told.steps["verified"] == sum(one.planner.steps["verified"] for one in stats)


def test_the_engine_describes_its_planner(toy_model):
    engine = adaptive_engine(toy_model, mode="throughput")
    run_requests(engine, requests_of(4))
    told = describe_planner(engine)["planner"]
    assert (told["mode"], told["objective"]) == ("ranked", "throughput")
    assert told["accepted"] == engine.metrics.num_accepted_tokens
    assert describe_planner(adaptive_engine(toy_model, mode="static"))["planner"] == {"mode": "static", "tokens": 5}
    tiers = describe_planner(adaptive_engine(toy_model, mode="tiers"))["planner"]
    assert tiers == {"mode": "tiers", "width_by_batch_size": {"1": 1}}


def test_explain_answers(capsys):
    assert main(["plugins", "explain", "adaptive", "ngram"]) == 0
    assert "compatible" in capsys.readouterr().out


def test_without_a_drafter_there_is_nothing_to_plan(toy_model):
    engine = adaptive_engine(toy_model, drafters=(), mode="static")
    assert run_requests(engine, requests_of(4)).metrics.num_draft_tokens == 0
