"""Every part of a plugin that a step calls raises, answers nonsense or is slow: 64 others get exactly their tokens."""

from __future__ import annotations

import msgspec
import pytest
from exploding import MARKER, marked_model
from faulty import BEHAVIOURS, RUBBISH, hold_the_thread, in_process
from parts import CULPRIT, PARTS, Decides

from specserve.faults import RequestFault
from specserve.types import TokenLogprobs, Verdict
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request

NUM_CULPRITS, NUM_OTHERS = 6, 64


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return marked_model(tmp_path_factory.mktemp("marked") / "model", num_hidden_layers=1)


def requests_with_culprits(adapter=""):
    """Greedy and sampled, with and without log-probabilities; culprits, whose prompts end with the marker, are under
    the adapter."""
    others = [
        toy_request(
            f"other {i}", [1 + i, *range(5, 8 + i % 4)], max_tokens=5, ignore_eos=True, logprobs=(None, 1)[i % 2],
            **({"temperature": 1.0, "seed": 100 + i} if i % 3 else {}),
            **({"logit_bias": {7: 1.0}} if i % 5 == 0 else {}),
        )
        for i in range(NUM_OTHERS)
    ]  # fmt: skip
    culprits = [
        msgspec.structs.replace(
            toy_request(f"{CULPRIT} {i}", [9 + i, 5, MARKER], max_tokens=5, logprobs=1, ignore_eos=True,
                        **({"temperature": 1.0, "seed": i} if i % 2 else {})),
            adapter=adapter,
        )
        for i in range(NUM_CULPRITS)
    ]  # fmt: skip
    mixed = list(others)
    for i, culprit in enumerate(culprits):
        mixed.insert(i * 13, culprit)
    return mixed


@pytest.fixture(scope="module")
def expected(model):
    """Of all requests alone in their engine: by kernel set."""
    plain = {"max_num_seqs": 80, "kv_memory": "16M"}
    both = {}
    for native in (False, True):
        both[native] = run(model, requests_with_culprits(), plugins=("cpu",) if native else (), **plain)
        assert not any(MARKER in tokens for name, tokens in both[native].tokens().items() if name.startswith("other"))
    return both


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("name", PARTS)
def test_the_others_get_their_tokens_and_the_culprit_is_named(model, expected, caplog, name, behaviour):
    part = PARTS[name]
    outcome = run_with(model, part, BEHAVIOURS[behaviour], expected)
    check_tokens(part, outcome, expected[part.native], may_end=behaviour != "is slow")
    if behaviour == "raises" or (behaviour == "returns rubbish" and part.answers):
        check_named(outcome, caplog.text, "oracle" if name.startswith("drafter") else "faulty")
    if behaviour == "raises" and part.ends_culprits:
        ends = {output.finish_reason for name, output in outcome.outputs.items() if name.startswith(CULPRIT)}
        assert ends == ({"error", "length"} if name.startswith(("sampler.argmax", "sampler.target")) else {"error"})


@pytest.mark.sweep
@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_holds_the_thread_for_a_second_changes_no_token(model, expected, name):
    part = PARTS[name]
    check_tokens(part, run_with(model, part, hold_the_thread(1.0), expected), expected[part.native], may_end=False)


def run_with(model, part, behaviour, expected):
    engine = make_engine(
        model, extra=part.make(behaviour, expected[part.native].tokens()), plugins=("cpu",) if part.native else (),
        max_num_seqs=80, kv_memory="16M", block_size=4, allow_undeclared=True, fault_limit=1000, draft_fault_limit=1000,
    ).engine  # fmt: skip
    adapter = "" if engine.parts.max_adapters is None else "adapter@1"
    outcome = run_requests(engine, requests_with_culprits(adapter))
    for _ in RUBBISH:
        engine.observer_metrics()
    engine.check_integrity()
    return outcome


def check_tokens(part, outcome, plain, *, may_end):
    decided, right = outcome.decided(), plain.decided()
    assert len(decided) == NUM_OTHERS + NUM_CULPRITS
    for request_id in decided:
        if not (part.ends_culprits and may_end and request_id.startswith(CULPRIT)):
            assert repr(decided[request_id]) == repr(right[request_id]), request_id  # NaN is NaN


def check_named(outcome, log, name):
    metrics = outcome.metrics
    assert {plugin for plugin, *_ in metrics.faults.counts} | {d for d, _ in metrics.drafter_faults} == {name}
    assert f"plugin {name}" in log or f"drafter {name}" in log


def test_a_fault_that_claims_to_be_of_an_unknown_request_is_looked_for_like_any_other(model):
    engine = make_engine(model).engine
    forward, calls = engine.runner.forward, []

    def claiming(batch):
        calls.append(len(batch.spans))
        if len(calls) == 1:
            raise RequestFault("nobody", "a part", ValueError("no"))
        return forward(batch)

    engine.runner.forward = claiming
    requests = [toy_request(str(i), (1, 2, 3 + i)) for i in range(4)]
    assert run_requests(engine, requests).decided() == run(model, requests).decided()
    assert calls[:3] == [4, 2, 2]


TOKEN = TokenLogprobs(1, -1.0, (), ())
WRONG_VERDICTS = {
    "no verdict": lambda v: 7,
    "too few": lambda v: Verdict(v.spans[1:]),
    "no span": lambda v: Verdict([(), *v.spans[1:]]),
    "tokens beyond": lambda v: changed(v, tokens=(10**6,)),
    "tokens of another kind": lambda v: changed(v, tokens=[1]),
    "no token": lambda v: changed(v, tokens=()),
    "a reason": lambda v: changed(v, finish_reason="because"),
    "a path without a draft": lambda v: changed(v, path=(0,)),
    "log-probabilities": lambda v: changed(v, logprobs="many"),
    "too many log-probabilities": lambda v: changed(v, logprobs=(TOKEN, TOKEN)),
    "those of the prompt": lambda v: changed(v, prompt_logprobs=(1,)),
}


def changed(verdict, **fields):
    return Verdict([verdict.spans[0]._replace(**fields), *verdict.spans[1:]])


@pytest.mark.parametrize("kind", WRONG_VERDICTS)
def test_a_wrong_verdict_ends_the_request_that_it_is_wrong_about(model, kind):
    class First(Decides):
        def verify(self, batch, output):
            verdict = super().verify(batch, output)
            return WRONG_VERDICTS[kind](verdict) if batch.spans[0].request.id == "0" else verdict

    requests = [toy_request(str(i), (1, 2, 3 + i)) for i in range(4)]
    extra = in_process("faulty", make_verifier=lambda: First())
    outcome = run_requests(make_engine(model, extra=extra, allow_undeclared=True).engine, requests)
    right = run(model, requests).decided()
    assert {name: found for name, found in outcome.decided().items() if name != "0"} == {
        name: found for name, found in right.items() if name != "0"
    }
    assert outcome.outputs["0"].finish_reason == "error"
    assert {key[:2] for key in outcome.metrics.faults.counts} == {("faulty", "verifier")}
