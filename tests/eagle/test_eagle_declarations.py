"""`specserve plugins` about eagle: what it provides, and beside which plugins it works."""

from __future__ import annotations

import json

import pytest

from specserve.config import EngineConfig
from specserve.plugins.host import PluginHost
from specserve_server.cli import main


@pytest.mark.parametrize(("other", "reason"), [
    ("lora", "the draft model reads hidden states of the adapted target and has no adapter itself"),
    ("hybrid_attn", "its layers have the backend for decoding, or read the target's keys, and change none"),
    ("ngram", "drafts are compared and the one that promises most is verified"),
])  # fmt: skip
@pytest.mark.parametrize("settings", [(), ("--set", "eagle.topk=4")])
def test_it_works_beside_the_other_plugins_and_says_why(capsys, other, reason, settings):
    assert main(["plugins", "explain", "eagle", other, *settings]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"eagle works with {other}: ")
    assert reason in out


def test_trees_are_provided_with_topk_above_1_only(capsys):
    def meets(*settings):
        assert main(["plugins", "explain", "eagle", "ngram", "--json", *settings]) == 0
        return json.loads(capsys.readouterr().out)["meets"]

    trees = ["draft.tree", "draft.chain"]
    assert trees not in meets()
    assert trees not in meets("--set", "eagle.topk=1")
    assert trees in meets("--set", "eagle.topk=4")


def test_check_accepts_it_alone_and_beside_all_others(capsys):
    assert main(["plugins", "check", "eagle"]) == 0
    assert main(["plugins", "check", "eagle", "lora", "hybrid_attn", "ngram"]) == 0
    assert "ok" in capsys.readouterr().out


@pytest.mark.parametrize(("settings", "trees"), [({}, False), ({"topk": 1}, False), ({"topk": 2}, True)])
def test_an_engine_has_trees_with_topk_above_1_only(settings, trees):
    host = PluginHost.start(EngineConfig(plugins=("eagle",), plugin_options={"eagle": settings}))
    assert ("draft.tree" in host.features) == trees
    assert {"draft.chain", "draft.model"} <= set(host.features)
