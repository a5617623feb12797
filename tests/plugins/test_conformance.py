"""`pytest --specserve-plugin NAME`: our plugins pass the kit, and it finds what it is for."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from author_mistakes import DRAFTER, PROCESSOR
from conformance_runs import counts_of, run_kit, table_of
from fake_site import write_plugin

from draft_adapters import write_draft_adapter
from specserve_workbench.testing.conformance.cases import SETTINGS

COMPATIBLE = dict.fromkeys(("draft.chain", "draft.tree"), "WORKS")
OWN = ("adaptive", "cpu", "eagle", "grammar", "hybrid_attn", "kv_events", "lora", "ngram", "repeat", "uno")
RANKS = "tensor_parallel"
"""Its processes start for every case, which takes minutes: only with the sweeps."""
BESIDE_RANKS = f"with {RANKS}"
LONGEST, IDLE = "ten thousand requests", "idle steps"
STRESS = (
    "every hook is called",
    "random limits",
    "rubbish beside it",
    "faults beside it",
    "faults in it",
    IDLE,
    "aborts",
    "edits are what apply does",
    LONGEST,
)
KEPT = ("eagle", "grammar", "ngram")
"""Plugins that keep much of requests: `make test` looks for what the ten thousand leave with these alone."""
PUBLISHED = Path(__file__).parents[2] / "docs" / "compatibility.json"
AS_IT_IS = "drafts_change_nothing and as"
"""Of its cases the first one."""
MISTAKEN = PROCESSOR.replace("return logits", "logits[7] += 50.0 * len(path)\n        return logits")
"""What it does to a row depends on how many of the tokens before it are drafts."""
EDITS = "edits are what apply does"
EDIT = "    def edit(self, edits, path):\n        {what}\n\n    def commit"
DIFFERING = "from array import array\n" + PROCESSOR.replace(
    "    def commit", "    has_edits = True\n\n" + EDIT.format(what="edits.forbid(array('q', [7]))")
)
UNCALLED = PROCESSOR.replace("    def commit", EDIT.format(what="pass"))
FORGETFUL = (
    "    def propose(self, batch, output, verdict, limits):\n        return [Draft(tokens=(1,))",
    """    needs = DrafterNeeds(every_step=True)
    steps = 0

    def observe_step(self, batch, output, verdict):
        self.steps += 1

    def idle_steps(self):
        return 9

    def observe_idle(self, batch, count, hidden):
        self.steps += 1

    def propose(self, batch, output, verdict, limits):
        return [Draft(tokens=(self.steps % 7,))""",
)
COUNTING = "        self.applied += 1\n        logits[self.applied % 50] += 100\n        return logits"
CHANGING = PROCESSOR.replace(
    "class State(ProcessorState):\n", "class State(ProcessorState):\n    applied = 0\n\n"
).replace("        return logits", COUNTING)


def own_settings(toy_model):
    """What some of our plugins need."""
    adapter = write_draft_adapter(toy_model.parent / "draft adapter", toy_model)
    return f"eagle.model={toy_model}", "eagle.steps=3", "kv_events.endpoint=tcp://127.0.0.1:*", f"uno.adapter={adapter}"


def left_out(plugin):
    """Cases of test-all: a pair is run from its first plugin, and cpu, which serves all others, beside none. Each
    setting but the first one meets every third plugin."""
    others = OWN if plugin == "cpu" else OWN[: OWN.index(plugin)]
    longest = () if plugin in KEPT else (LONGEST,)
    settings = {what for i, what in enumerate(list(SETTINGS)[1:], OWN.index(plugin)) if i % 3}
    return {f"with {other}" for other in others if other not in (plugin, "cpu")} | settings | {*longest}


def not_left_out():
    """As pytest's -k."""
    of = {name: [f"({' and '.join(what.split())})" for what in sorted(left_out(name) - {LONGEST})] for name in OWN}
    cases = [f"{name}: and ({' or '.join(each)})" for name, each in of.items()]
    return " and ".join(f"not ({each})" for each in (RANKS, *cases, f"ten_thousand and not ({': or '.join(KEPT)}:)"))


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.sweep)])
def own_report(request, tmp_path_factory, toy_model):
    """All in one run, which decodes without drafts once for all of them; what was run, what it said, its report."""
    folder = tmp_path_factory.mktemp("own")
    report, some = folder / "report.json", request.param == "some"
    only = not_left_out() if some else f"not {RANKS}"
    code, said = run_kit(folder, *OWN, settings=own_settings(toy_model), only=only, report=report, as_installed=True)
    assert code == 0, said
    return left_out if some else lambda plugin: set(), said, report


@pytest.mark.parametrize("plugin", OWN)
def test_our_own_plugins_pass(plugin, own_report):
    omitted, said, report = own_report
    found = outcomes(report, plugin)
    published = outcomes(PUBLISHED, plugin)
    whats = {*SETTINGS, *(f"with {other}" for other in OWN if other not in (plugin, "cpu")), *STRESS}
    assert published.keys() == {*whats, BESIDE_RANKS}, "make proofs"
    assert found == {what: published[what] for what in whats - omitted(plugin)}, "make proofs"
    table = table_of(said)
    counts = counts_of(table, plugin)
    least = len(SETTINGS.keys() - omitted(plugin)) - 1
    assert len(counts) >= least
    assert sum(counts) > 100
    # adaptive verifies what pays by the clock, which is little where other processes keep the cores busy
    steady = counts_of("\n".join(line for line in table.splitlines() if "adaptive" not in line), plugin)
    assert all(count > 10 for count in steady)
    assert len(steady) >= least or plugin == "adaptive"


@pytest.mark.sweep
def test_the_model_by_transformers_passes(tmp_path, toy_model):
    """In place of the engine's own family, which is what it is compared with in every other row."""
    report, settings = tmp_path / "report.json", (*own_settings(toy_model), "transformers.architectures=all")
    code, said = run_kit(tmp_path, "transformers", settings=settings, report=report, as_installed=True)
    assert code == 0, said
    assert outcomes(report, "transformers") == outcomes(PUBLISHED, "transformers"), "make proofs"


@pytest.mark.sweep
def test_what_only_reads_weights_passes(tmp_path, toy_model):
    report = tmp_path / "report.json"
    code, said = run_kit(tmp_path, "quantised", settings=own_settings(toy_model), report=report, as_installed=True)
    assert code == 0, said
    assert outcomes(report, "quantised") == outcomes(PUBLISHED, "quantised"), "make proofs"


@pytest.mark.sweep
def test_several_ranks_pass(tmp_path, toy_model):
    report, settings = tmp_path / "report.json", own_settings(toy_model)
    code, said = run_kit(tmp_path, RANKS, settings=settings, report=report, as_installed=True)
    assert code == 0, said
    assert outcomes(report, RANKS) == outcomes(PUBLISHED, RANKS), "make proofs"
    code, said = run_kit(tmp_path, *OWN, settings=settings, only=RANKS, report=report, as_installed=True)
    assert code == 0, said
    for plugin in OWN:
        assert outcomes(report, plugin) == {BESIDE_RANKS: outcomes(PUBLISHED, plugin)[BESIDE_RANKS]}, "make proofs"


def outcomes(report, plugin):
    """By what the plugin was run with."""
    return {entry["what"]: entry["outcome"] for entry in json.loads(report.read_text()) if entry["plugin"] == plugin}


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory):
    """What the kit says of plugins with one mistake each. All in one run: a process takes two seconds to start."""
    site = tmp_path_factory.mktemp("mistakes")
    write_plugin(site, "dependent", provides="logits.processor", plugin=MISTAKEN, compatible=COMPATIBLE)
    write_plugin(site, "broken", plugin=drafter("broken", "return [Draft", "1 / 0; return [Draft"))
    keeps = "    kept = []\n\n    def start(self, request):\n        self.kept.append(request)\n\n    def propose"
    write_plugin(site, "leaking", plugin=drafter("leaking", "    def propose", keeps))
    for name, plugin in {"differing": DIFFERING, "uncalled": UNCALLED, "changing": CHANGING}.items():
        write_plugin(site, name, provides="logits.processor", plugin=plugin, compatible=COMPATIBLE)
    raises = "\n\n@hookimpl\ndef list_models():\n    return [{}['models']]\n"
    write_plugin(site, "unlisted", plugin=drafter("unlisted") + raises)
    write_plugin(site, "forgetful", plugin=drafter("forgetful", *FORGETFUL))
    names = ("dependent", "broken", "leaking", "differing", "uncalled", "changing", "unlisted", "forgetful")
    only = (
        f"((dependent: or broken:) and {AS_IT_IS}) or (leaking: and ten_thousand)"
        " or (forgetful: and idle_steps) or ((uncalled: or changing:) and edits)"
        " or ((differing: or unlisted:) and (edits or hook or random))"
    )
    code, said = run_kit(site, *names, site=site, only=only)
    assert code == 1
    return said


def drafter(name, *change):
    """One that drafts, but for `change`: what is replaced by what."""
    plugin = DRAFTER.replace(*change) if change else DRAFTER
    assert not change or plugin != DRAFTER
    return plugin.replace('name = "mine"', f'name = "{name}"')


def results_of(said, plugin):
    """Its lines of the table: whether it failed, in what, and what is said of that."""
    return re.findall(rf"^(\w+) +{plugin}: (.*?)(?:  +(.*?))? *$", table_of(said), re.MULTILINE)


def test_a_processor_that_depends_on_drafts_is_found(mistakes):
    ((outcome, what, _),) = results_of(mistakes, "dependent")
    assert (outcome, what) == ("failed", "as it is")
    assert "differs with drafts of noise" in mistakes


def test_a_drafter_at_fault_is_found(mistakes):
    ((outcome, what, _),) = results_of(mistakes, "broken")
    assert (outcome, what) == ("failed", "as it is")
    assert "raised ZeroDivisionError" in mistakes


def test_a_drafter_that_keeps_requests_is_found(mistakes):
    ((outcome, what, _),) = results_of(mistakes, "leaking")
    assert (outcome, what) == ("failed", LONGEST)
    assert "objects more after 10000 requests" in mistakes


def test_a_drafter_that_forgets_idle_steps_is_found(mistakes):
    ((outcome, what, _),) = results_of(mistakes, "forgetful")
    assert (outcome, what) == ("failed", IDLE)
    assert "drafts otherwise where it is told of idle steps afterwards, by observe_idle" in mistakes


def test_a_processor_whose_edits_differ_from_apply_is_found(mistakes):
    results = results_of(mistakes, "differing")
    assert [what for outcome, what, _ in results if outcome == "failed"] == [EDITS]
    assert len(results) == 3


def test_a_processor_whose_edits_would_never_be_called_is_found(mistakes):
    ((outcome, what, _),) = results_of(mistakes, "uncalled")
    assert (outcome, what) == ("failed", EDITS)
    assert "State has edit, which nobody calls: let it state has_edits" in mistakes


def test_a_processor_whose_apply_changes_its_state_is_found(mistakes):
    """Though the engine happens to call it once for each token."""
    ((outcome, what, _),) = results_of(mistakes, "changing")
    assert (outcome, what) == ("failed", EDITS)
    assert "gave another row. It changes its state" in mistakes


def test_a_hook_that_is_at_fault_in_a_server_is_found(mistakes):
    results = results_of(mistakes, "unlisted")
    assert [what for outcome, what, _ in results if outcome == "failed"] == ["every hook is called"]
    assert len(results) == 3


@pytest.fixture(scope="module")
def left_out_by_the_kit(tmp_path_factory):
    """What it says of plugins that it has to skip, which is no failure."""
    site = tmp_path_factory.mktemp("skipped")
    declines = "\n\n@hookimpl\ndef decline_graph():\n    return 'not with mine'\n"
    write_plugin(site, "declining", plugin=drafter("declining") + declines)
    write_plugin(site, "undeclared", provides="logits.processor", plugin=PROCESSOR)
    only = f"(declining: and graphs) or (undeclared: and {AS_IT_IS})"
    code, said = run_kit(site, "declining", "undeclared", site=site, only=only)
    assert code == 0
    return said


def test_a_graph_that_is_never_replayed_proves_nothing(left_out_by_the_kit):
    results = results_of(left_out_by_the_kit, "declining")
    assert [(outcome, what) for outcome, what, _ in results] == [
        ("skipped", "piecewise graphs"), ("skipped", "full graphs"),
    ]  # fmt: skip
    for (_, what, detail), mode in zip(results, ("piecewise", "full"), strict=True):
        assert re.match(f"no step was replayed from a {mode} graph: .*not with mine", detail), what


def test_what_is_not_declared_is_left_out_with_the_reason(left_out_by_the_kit):
    ((outcome, what, detail),) = results_of(left_out_by_the_kit, "undeclared")
    assert (outcome, what) == ("skipped", "as it is")
    assert detail.startswith("undeclared and noise are undeclared: neither says")
    told = "undeclared: 1 case proves nothing, since what undeclared works with is not declared"
    assert told in left_out_by_the_kit


def test_the_name_of_a_plugin_that_is_not_installed_is_refused(tmp_path):
    code, said = run_kit(tmp_path, "ngramm")
    assert code == 4
    assert "plugin ngramm is not installed; did you mean 'ngram'?" in said


@pytest.mark.parametrize(("names", "file"), [(("repeat",), "nowhere/report.json"), ((), "report.json")])
def test_a_report_that_could_not_be_written_is_refused_before_anything_runs(tmp_path, names, file):
    code, said = run_kit(tmp_path, *names, report=tmp_path / file)
    assert code == 4
    assert f"{file}: give a file in a folder that exists, and --specserve-plugin NAME" in said
