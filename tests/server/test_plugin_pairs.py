"""GET /v1/plugins/pairs: any two installed plugins, whether they work together under the engine's configuration."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import msgspec

from specserve.config import EngineConfig
from specserve.declare import PluginDeclaration, Reference
from specserve.plugins.discovery import discover
from specserve.plugins.rules import resolve
from specserve.plugins.verdicts import verdict
from specserve_server.operations import plugin_pairs

if TYPE_CHECKING:
    import pytest
    from fake_engine import FakeEngine


async def pairs(client: Any) -> dict[tuple[str, str], tuple[str, str]]:
    response = await client.get("/v1/plugins/pairs")
    assert response.status == 200, await response.text()
    data = (await response.json())["data"]
    return {tuple(pair["plugins"]): (pair["verdict"], pair["sentence"]) for pair in data}


async def test_each_pair_of_installed_plugins_is_judged_as_at_start_up(client: Any) -> None:
    found = await pairs(client)
    installed = discover()
    assert set(found) == set(combinations(installed, 2))
    for (left, right), told in found.items():
        (judged,) = [
            finding
            for finding in resolve(
                [installed[left], installed[right]], EngineConfig(plugins=(left, right), default_plugins=False)
            ).findings
            if (finding.left, finding.right) == (left, right)
        ]
        assert told == (judged.kind, verdict(judged))
    assert found["tensor_parallel", "transformers"][0] == "conflict"


async def test_the_configuration_is_that_of_the_engine(
    connect: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is told with may have more: the file of a chat template."""
    client = await connect(engine)
    assert (await pairs(client))["graphs", "tensor_parallel"][0] == "compatible"
    told = msgspec.to_builtins(EngineConfig(graphs="full")) | {"chat_template": None}
    monkeypatch.setattr(engine, "describe", lambda: {"config": told})
    assert (await pairs(client))["graphs", "tensor_parallel"][0] == "conflict"


async def test_a_plugin_whose_declaration_cannot_be_used_is_told_and_spoils_no_other_pair(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = discover()
    broken = PluginDeclaration(
        name="broken",
        provides={"draft.chain": ""},
        compatible={"draft.tree": Reference("specserve_none.compat:CONSTANT")},
    )
    some = {"broken": broken, "ngram": installed["ngram"], "lora": installed["lora"]}
    monkeypatch.setattr(plugin_pairs, "discover", lambda: some)
    found = await pairs(client)
    assert found["broken", "ngram"][0] == "unusable"
    assert "specserve_none" in found["broken", "ngram"][1]
    assert found["ngram", "lora"][0] == "compatible"
