"""The self-test finds what is the same, and what is not."""

from __future__ import annotations

import msgspec
import pytest
from found import by_check, statuses

from specserve.attention.sdpa import SdpaFactory
from specserve.config import EngineConfig
from specserve.errors import ModelError
from specserve_workbench.doctor import self_test, trial
from specserve_workbench.doctor.comparison import difference, no_guarantee
from specserve_workbench.doctor.self_test import self_test_rows
from specserve_workbench.doctor.trial import Trial

DRAFTER = """
from specserve.hookspecs import hookimpl
from specserve.protocols import Drafter, DrafterNeeds
from specserve.types import Draft

class Repeats(Drafter):
    name = "repeats"

    def propose(self, batch, output, verdict, limits):
        last = [span.request.tokens[-1] for span in batch.spans]
        return [Draft(tokens=(token, token)) if limit > 1 else None for token, limit in zip(last, limits)]

@hookimpl
def make_drafter():
    return Repeats()
"""
TAMPERS = f"""{DRAFTER}
@hookimpl
def adapt_model(model):
    model.projections["lm_head"].weight.neg_()
"""
FAULTY = DRAFTER.replace("last = ", "last = 1 / 0 or ")
NEEDS_MORE = DRAFTER.replace('"repeats"\n', '"repeats"\n    needs = DrafterNeeds(hidden_layers=(99,))\n')


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(self_test, "ROUNDS", 2)
    monkeypatch.setattr(self_test, "SECONDS", 60.0)
    monkeypatch.setattr(trial, "ROUND_SECONDS", 60.0)  # the counts depend on no machine's speed
    monkeypatch.setattr(trial, "MAX_TOKENS", 16)


def rows_with(make_case, model, **config):
    return by_check(self_test_rows(make_case(model=str(model), threads=1, **config)))


def test_without_a_drafter_the_test_drafter_proves_verification(make_case, toy_model, install):
    install("ngram")
    rows = rows_with(make_case, toy_model)
    assert statuses(rows.values()) == {
        "model": "ok",
        "test drafter": "ok",
        "enabled drafters": "note",
        "without drafts": "ok",
    }
    figures = rows["test drafter"].figures
    assert figures["compared"] == 2 * 4 * 16
    assert 0 < figures["accepted"] < figures["drafted"]
    assert rows["without drafts"].figures["tokens_per_second"] > 0
    assert "ngram" in rows["enabled drafters"].advice


def test_enabled_drafters_are_compared_and_timed(make_case, toy_model, install):
    install("repeats", plugin=DRAFTER)
    rows = rows_with(make_case, toy_model, plugins=("repeats",))
    assert rows["enabled drafters"].found.startswith("repeats: the same 128 tokens")
    assert {"tokens_per_second", "ratio"} == set(rows["with drafts"].figures)


def test_a_drafter_that_changes_tokens_fails(make_case, toy_model, install):
    install("tampers", plugin=TAMPERS)
    rows = rows_with(make_case, toy_model, plugins=("tampers",))
    assert (rows["test drafter"].status, rows["enabled drafters"].status) == ("ok", "failed")
    assert "without drafts" in rows["enabled drafters"].found
    assert "report it" in rows["enabled drafters"].advice


def test_where_nothing_is_guaranteed_a_difference_is_a_warning(make_case, toy_model, install, monkeypatch):
    install("tampers", plugin=TAMPERS)
    states = msgspec.structs.replace(SdpaFactory.capabilities, row_invariant=False)
    monkeypatch.setattr(SdpaFactory, "capabilities", states)
    row = rows_with(make_case, toy_model, plugins=("tampers",))["enabled drafters"]
    assert (row.status, "not guaranteed" in row.found) == ("warning", True)


def test_other_kernels_than_without_drafts_are_no_failure(toy_model):
    options = {"model": str(toy_model), "threads": 1, "max_num_seqs": 2, "max_model_len": 128}
    native, plain = Trial(EngineConfig(**options)), Trial(EngineConfig(**options, default_plugins=False))
    assert "other kernels serve" in no_guarantee(plain, native)
    assert no_guarantee(native, native) == ""


def test_faults_of_a_drafter_are_warnings(make_case, toy_model, install):
    install("faulty", plugin=FAULTY)
    rows = rows_with(make_case, toy_model, plugins=("faulty",))
    assert rows["enabled drafters"].status == "note"
    assert (rows["warnings"].status, "ZeroDivisionError" in rows["warnings"].found) == ("warning", True)


def test_drafters_that_do_not_start_fail_with_their_own_model_only(make_case, toy_model, install, monkeypatch):
    install("needy", plugin=NEEDS_MORE)
    rows = rows_with(make_case, toy_model, plugins=("needy",))
    assert rows["self test"].status == "failed"
    assert "hidden states of layer 99" in rows["self test"].found
    monkeypatch.setattr(self_test, "SMALL", 0)
    monkeypatch.setattr(self_test, "DEMO_MODEL", str(toy_model))
    rows = rows_with(make_case, toy_model, plugins=("needy",))
    assert "do not fit the model of this test" in rows["enabled drafters"].found
    assert "too many for a short test" in rows["model"].found
    assert rows["without drafts"].status == "ok"


def test_without_the_demo_model_a_random_one_is_tried(make_case, install, monkeypatch, tmp_path):
    monkeypatch.setattr(self_test, "DEMO_MODEL", "no-demo")
    rows = rows_with(make_case, tmp_path / "nothing")
    assert rows["model"].found.startswith("a small random model: ")
    assert rows["test drafter"].status == "ok"


def test_a_downloaded_hub_id_is_not_asked_for_again(make_case, toy_model, install, monkeypatch):
    monkeypatch.setattr("specserve_workbench.doctor.case.locate_downloaded", lambda name: toy_model)
    monkeypatch.setattr("specserve.models.locate._download", lambda name: pytest.fail("it would be downloaded"))
    rows = rows_with(make_case, "some-org/some-model")
    assert rows["model"].found.startswith("some-org/some-model: ")
    assert rows["test drafter"].status == "ok"


def test_plugins_that_do_not_start_leave_it_out(make_case, toy_model, install):
    rows = rows_with(make_case, toy_model, plugins=("missing",))
    assert statuses(rows.values()) == {"self test": "note"}


def test_a_slow_machine_compares_what_it_has(make_case, toy_model, install, monkeypatch):
    monkeypatch.setattr(trial, "ROUND_SECONDS", 0.0)
    rows = rows_with(make_case, toy_model)
    assert (rows["test drafter"].status, rows["without drafts"].status) == ("note", "ok")
    assert rows["test drafter"].figures["compared"] == 0


def test_a_request_that_fails_is_a_failed_row(make_case, toy_model, install, monkeypatch):
    def refuse(output):
        raise ModelError("the weights are NaN.")

    monkeypatch.setattr(trial, "checked", refuse)
    assert rows_with(make_case, toy_model)["self test"].found == "the weights are NaN."


def test_the_first_difference_is_named(toy_model):
    def run():
        found = Trial(EngineConfig(model=str(toy_model), threads=1, max_num_seqs=2, max_model_len=128))
        found.run_round()
        return found

    one, other = run(), run()
    assert difference(one.rounds[0], other) == ""
    wanted = one.rounds[0].tokens["seeded 1"][3]
    other.rounds[0].tokens["seeded 1"][3] = -1
    assert difference(one.rounds[0], other) == f"request seeded 1: token 3 is -1, and {wanted} without drafts"
