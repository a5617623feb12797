"""Who may run with whom, decided from declarations alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from specserve.config import EngineConfig
from specserve.declare import Compatible, Conflict, PluginDeclaration, Provides
from specserve.plugins.rules import resolve
from specserve.plugins.verdicts import refusal, verdict

if TYPE_CHECKING:
    from specserve.plugins.findings import Finding


def declare(name: str, provides: str, **groups: Any) -> PluginDeclaration:
    return PluginDeclaration(name=name, module=f"{name}.plugin", provides=dict.fromkeys(provides.split(), ""), **groups)


def judge(*declarations: PluginDeclaration, **config: Any) -> Finding:
    return resolve(declarations, EngineConfig(**config)).findings[0]


def test_one_side_that_declares_all_of_the_others_features_is_enough() -> None:
    ngram = declare("ngram", "draft.chain draft.tree", compatible={"lora.target": "adapters only change the verifier."})
    finding = judge(ngram, declare("lora", "lora.target"))
    assert finding.kind == "compatible"
    assert verdict(finding) == "ngram works with lora: adapters only change the verifier."


def test_two_sides_may_share_the_declarations() -> None:
    a = declare("a", "draft.chain draft.tree", compatible={"lora.target": "yes"})
    b = declare("b", "lora.target attention.hybrid", compatible={"draft.chain": "yes", "draft.tree": "yes"})
    assert judge(a, b).kind == "compatible"


def test_one_undeclared_feature_leaves_the_pair_undeclared() -> None:
    a = declare("a", "draft.chain", compatible={"lora.target": "yes"})
    finding = judge(a, declare("b", "lora.target attention.hybrid"))
    assert finding.kind == "undeclared"
    assert '"attention.hybrid" = "a.compat:CONSTANT" in specserve.compatible.a' in refusal(finding)
    assert '"draft.chain" = "b.compat:CONSTANT" in specserve.compatible.b' in refusal(finding)
    assert "--allow-undeclared" in refusal(finding)


def test_a_conflict_of_either_side_beats_every_compatibility() -> None:
    a = declare("a", "draft.chain", compatible={"lora.target": "yes"})
    b = declare("b", "lora.target", conflicts={"draft.chain": Conflict("its caches would be mixed up.")})
    finding = judge(a, b)
    assert refusal(finding) == ("a cannot run with b: its caches would be mixed up. Remove --plugin a or --plugin b.")


def test_the_same_feature_twice_is_no_conflict_in_itself() -> None:
    twice = declare("a", "draft.chain", compatible={"draft.chain": "drafts compose"}), declare("b", "draft.chain")
    assert judge(*twice).kind == "compatible"
    assert judge(declare("a", "draft.chain"), declare("b", "draft.chain")).kind == "undeclared"


def test_a_check_sees_everything_so_that_three_can_refuse_where_two_agree() -> None:
    def no_third(enabled: frozenset[str], config: EngineConfig) -> str | None:
        return "the draft heads would need their adapters too" if "attention.hybrid" in enabled else None

    a = declare("a", "draft.chain", compatible={"lora.target": Compatible("yes", no_third), "attention.hybrid": "yes"})
    b, c = declare("b", "lora.target", compatible={"attention.hybrid": "yes"}), declare("c", "attention.hybrid")
    config = EngineConfig()
    assert resolve([a, b], config).refusals(config) == ()
    (refused,) = resolve([a, b, c], config).refusals(config)
    assert verdict(refused) == "a cannot run with b: the draft heads would need their adapters too."


def test_a_conditional_conflict_that_does_not_apply_says_nothing() -> None:
    def only_on_cuda(enabled: frozenset[str], config: EngineConfig) -> str | None:
        return "streams collide" if config.device == "cuda" else None

    a = declare("a", "draft.chain", conflicts={"lora.target": Conflict("on CUDA", only_on_cuda)})
    b = declare("b", "lora.target", compatible={"draft.chain": "yes"})
    assert judge(a, b).kind == "compatible"
    assert judge(a, b, device="cuda").kind == "conflict"


@pytest.mark.parametrize("graphs", ["none", "full"])
def test_a_core_feature_needs_no_declaration_and_a_conflict_counts_where_it_is_in_effect(graphs: str) -> None:
    silent, refuses = declare("a", "draft.chain"), declare("b", "draft.model", conflicts={"graph.full": "it syncs."})
    config = EngineConfig(graphs=graphs)
    assert resolve([silent], config).findings == ()
    refusals = [refusal(finding) for finding in resolve([refuses], config).refusals(config)]
    said = "b cannot run with graph.full: it syncs. Remove --plugin b, or pass --graphs none or piecewise."
    assert refusals == ([said] if graphs == "full" else [])


def test_a_feature_that_is_off_under_this_configuration_needs_no_declaration() -> None:
    def when_asked(config: EngineConfig) -> str | None:
        return None if config.plugin_options.get("a", {}).get("tree") else "trees are off"

    tree = Provides("with --set a.tree=true", when_asked)
    a = PluginDeclaration(name="a", provides={"draft.chain": "", "draft.tree": tree})
    b = declare("b", "lora.target", compatible={"draft.chain": "yes"})
    assert judge(a, b).kind == "compatible"
    assert judge(a, b, plugin_options={"a": {"tree": True}}).kind == "undeclared"
    assert resolve([a], EngineConfig()).plugins[0].features_off == {"draft.tree": "trees are off"}


def test_kernel_plugins_meet_nobody() -> None:
    assert judge(declare("cpu", "kernel.cpu"), declare("a", "draft.chain")).kind == "compatible"


def test_plain_torch_kernels_are_a_feature_until_a_plugin_brings_others() -> None:
    a = declare("a", "draft.chain", conflicts={"kernel.torch": "it needs native kernels"})
    config = EngineConfig()
    assert [finding.right for finding in resolve([a], config).refusals(config)] == ["kernel.torch"]
    assert resolve([a, declare("cpu", "kernel.cpu")], config).refusals(config) == ()
