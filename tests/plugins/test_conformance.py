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
LONGEST = "ten thousand requests"
STRESS = (
    "every hook is called",
    "random limits",
    "rubbish beside it",
    "faults beside it",
    "faults in it",
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


def own_settings(toy_model):
    """What some of our plugins need."""
    adapter = write_draft_adapter(toy_model.parent / "draft adapter", toy_model)
    return f"eagle.model={toy_model}", "eagle.steps=3", "kv_events.endpoint=tcp://127.0.0.1:*", f"uno.adapter={adapter}"


def left_out(plugin):
    """Cases of test-all: a pair is run from its first plugin, and cpu, which serves all others, beside none."""
    others = OWN if plugin == "cpu" else OWN[: OWN.index(plugin)]
    longest = () if plugin in KEPT else (LONGEST,)
    return {f"with {other}" for other in others if other not in (plugin, "cpu")} | {*longest}


def not_left_out():
    """As pytest's -k."""
    pairs = [
        f"{plugin}: and with and ({' or '.join(sorted(what.split()[1] for what in left_out(plugin) - {LONGEST}))})"
        for plugin in OWN[1:]
    ]
    return " and ".join(f"not ({each})" for each in (RANKS, *pairs, f"ten_thousand and not ({': or '.join(KEPT)}:)"))


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
    assert len(counts) >= len(SETTINGS) - 1
    assert sum(counts) > 100
    # adaptive verifies what pays by the clock, which is little where other processes keep the cores busy
    steady = counts_of("\n".join(line for line in table.splitlines() if "adaptive" not in line), plugin)
    assert all(count > 10 for count in steady)
    assert len(steady) >= len(SETTINGS) - 1 or plugin == "adaptive"


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


def test_a_processor_that_depends_on_drafts_is_found(tmp_path):
    write_plugin(tmp_path, "mine", provides="logits.processor", plugin=MISTAKEN, compatible=COMPATIBLE)
    code, said = run_kit(tmp_path, "mine", site=tmp_path, only=AS_IT_IS)
    assert code == 1
    assert re.search(r"^failed +mine: as it is", said, re.MULTILINE)
    assert "differs with drafts of noise" in said


def test_a_drafter_at_fault_is_found(tmp_path):
    broken = DRAFTER.replace("return [Draft", "1 / 0; return [Draft")
    write_plugin(tmp_path, "mine", plugin=broken)
    code, said = run_kit(tmp_path, "mine", site=tmp_path, only=AS_IT_IS)
    assert code == 1
    assert re.search(r"^failed +mine: as it is", said, re.MULTILINE)
    assert "raised ZeroDivisionError" in said


def test_a_graph_that_is_never_replayed_proves_nothing(tmp_path):
    declines = DRAFTER + "\n\n@hookimpl\ndef decline_graph():\n    return 'not with mine'\n"
    write_plugin(tmp_path, "mine", plugin=declines)
    code, said = run_kit(tmp_path, "mine", site=tmp_path, only="graphs")
    assert code == 0
    for mode in ("piecewise", "full"):
        skipped = rf"^skipped mine: {mode} graphs +no step was replayed from a {mode} graph: .*not with mine"
        assert re.search(skipped, said, re.MULTILINE), said


def test_a_drafter_that_keeps_requests_is_found(tmp_path):
    leaking = DRAFTER.replace(
        'name = "mine"\n',
        'name = "mine"\n    kept = []\n\n    def start(self, request):\n        self.kept.append(request)\n',
    )
    assert leaking != DRAFTER
    write_plugin(tmp_path, "mine", plugin=leaking)
    code, said = run_kit(tmp_path, "mine", site=tmp_path, only="ten_thousand")
    assert code == 1
    assert re.search(r"^failed +mine: ten thousand requests", said, re.MULTILINE)
    assert "objects more after 10000 requests" in said


def test_a_processor_whose_edits_differ_from_apply_is_found(tmp_path):
    edits = (
        "    has_edits = True\n    def edit(self, edits, path):\n        edits.forbid(array('q', [7]))\n    def commit"
    )
    mistaken = "from array import array\n" + PROCESSOR.replace("    def commit", edits)
    write_plugin(tmp_path, "mine", provides="logits.processor", plugin=mistaken, compatible=COMPATIBLE)
    code, said = run_kit(tmp_path, "mine", site=tmp_path, only="edits or hook or random")
    assert code == 1
    assert re.findall(r"^failed +(.*?) *$", table_of(said), re.MULTILINE) == ["mine: edits are what apply does"]


def test_a_processor_whose_edits_would_never_be_called_is_found(tmp_path):
    edits = "    def edit(self, edits, path):\n        pass\n\n    def commit"
    write_plugin(tmp_path, "mine", provides="logits.processor", plugin=PROCESSOR.replace("    def commit", edits))
    code, said = run_kit(tmp_path, "mine", site=tmp_path, only="edits")
    assert code == 1
    assert "State has edit, which nobody calls: let it state has_edits" in said


def test_a_processor_whose_apply_changes_its_state_is_found(tmp_path):
    """Though the engine happens to call it once for each token."""
    state = "class State(ProcessorState):\n"
    counts = state + "    applied = 0\n"
    edits = "        self.applied += 1\n        logits[self.applied % 50] += 100\n        return logits"
    mistaken = PROCESSOR.replace(state, counts).replace("        return logits", edits)
    write_plugin(tmp_path, "mine", provides="logits.processor", plugin=mistaken)
    code, said = run_kit(tmp_path, "mine", site=tmp_path, only="edits")
    assert code == 1
    assert re.findall(r"^failed +(.*?) *$", table_of(said), re.MULTILINE) == ["mine: edits are what apply does"]
    assert "gave another row. It changes its state" in said


def test_a_hook_that_is_at_fault_in_a_server_is_found(tmp_path):
    broken = DRAFTER + "\n\n@hookimpl\ndef list_models():\n    return [1 / 0]\n"
    write_plugin(tmp_path, "mine", plugin=broken)
    code, said = run_kit(tmp_path, "mine", site=tmp_path, only="edits or hook or random")
    assert code == 1
    assert re.findall(r"^failed +(.*?) *$", table_of(said), re.MULTILINE) == ["mine: every hook is called"]


def test_what_is_not_declared_is_left_out_with_the_reason(tmp_path):
    write_plugin(tmp_path, "mine", provides="logits.processor", plugin=PROCESSOR)
    code, said = run_kit(tmp_path, "mine", site=tmp_path, only=AS_IT_IS)
    assert code == 0
    assert re.search(r"^skipped +mine: as it is +mine and noise are undeclared: neither says", said, re.MULTILINE), said
    assert "mine: 1 case proves nothing, since what mine works with is not declared" in said


def test_the_name_of_a_plugin_that_is_not_installed_is_refused(tmp_path):
    code, said = run_kit(tmp_path, "ngramm")
    assert code == 4
    assert "plugin ngramm is not installed; did you mean 'ngram'?" in said


@pytest.mark.parametrize(("names", "file"), [(("repeat",), "nowhere/report.json"), ((), "report.json")])
def test_a_report_that_could_not_be_written_is_refused_before_anything_runs(tmp_path, names, file):
    code, said = run_kit(tmp_path, *names, report=tmp_path / file)
    assert code == 4
    assert f"{file}: give a file in a folder that exists, and --specserve-plugin NAME" in said
