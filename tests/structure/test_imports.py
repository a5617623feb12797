"""Imports run in one direction: no circle, no plugin in the core, and nothing heavy where it must be light."""

from __future__ import annotations

import sys

import pytest
from import_graph import circles, imports_in, imports_of, modules, reached_from, run_time_graph, type_graph

LIGHT = ("msgspec", "pluggy", "pytest")
"""All that help, the plugin commands, declarations and pytest's start-up may load beyond the standard library."""
LIGHT_MODULES = (
    "specserve.api",
    "specserve.__main__",
    "specserve.command.generate",
    "specserve.config",
    "specserve.declare",
    "specserve.hookspecs",
    "specserve.plugins.discovery",
    "specserve.protocols",
    "specserve.types",
    "specserve_server.cli",
    "specserve_server.commands.completion",
    "specserve_server.commands.serve",
    "specserve_workbench.commands.doctor",
    "specserve_bench.commands",
    "specserve_workbench.commands.plugins",
    "specserve_workbench.testing.fixtures",
    "specserve_cpu.compat",
    "specserve_gguf.compat",
    "specserve_hybrid_attn.compat",
    "specserve_kv_events.compat",
    "specserve_lora.compat",
    "specserve_lora.uno.compat",
    "specserve_ngram.compat",
    "specserve_transformers.compat",
    "repeat_plugin.compat",
)


def test_no_circle_at_run_time():
    assert circles(run_time_graph()) == []


def test_no_circle_in_types_or_inside_functions():
    assert circles(type_graph()) == []


def distribution(module):
    return module.partition(".")[0]


WITH_ROUTES = {"specserve_kv_events", "specserve_lora", "specserve_ngram"}
"""Plugins that add routes to the server."""
WITH_LAYERS = {"specserve_eagle"}
"""Plugins whose drafters have decoder layers of their own."""


def test_the_product_imports_no_plugin_and_no_plugin_another():
    """`specserve_demo` is found by its name, as any package that brings a model."""
    ours = {distribution(module) for module in modules()}
    assert len(ours) >= 9
    for module in modules():
        allowed = {distribution(module), "specserve", "specserve_checks"}
        if distribution(module) in {"specserve_workbench", "specserve_bench", "specserve_ray", *WITH_ROUTES}:
            allowed.add("specserve_server")
        if distribution(module) in WITH_LAYERS:
            allowed.add("specserve_draft_models")
        if distribution(module) == "specserve_bench":
            allowed.add("specserve_workbench")
        for name, _ in imports_of(module):
            assert distribution(name) in allowed or distribution(name) not in ours, module


def test_the_workbench_runs_without_the_server():
    """It imports it in functions: of commands, which the server registers, or where it is installed."""
    for module in modules():
        if distribution(module) == "specserve_workbench":
            loaded = {i.name for i in imports_of(module) if i.when == "load"}
            assert not [name for name in loaded if distribution(name) == "specserve_server"], module


@pytest.mark.parametrize("door", ["specserve.api", "specserve.api.drafts", "specserve.api.files"])
def test_what_plugins_import_without_torch_loads_none(door):
    loaded = reached_from(run_time_graph(), door)
    assert "torch" not in {i.name.partition(".")[0] for m in loaded for i in imports_of(m) if i.when == "load"}


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_what_must_be_light_loads_nothing_heavy(module):
    loaded = reached_from(run_time_graph(), module)
    names = {i.name.partition(".")[0] for m in loaded for i in imports_of(m) if i.when == "load"}
    assert names - {distribution(m) for m in modules()} - sys.stdlib_module_names <= set(LIGHT)


# --- how the sources are read ---------------------------------------------------------------------------


def test_a_circle_is_found_with_all_its_members_and_without_those_that_only_reach_it():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}) == [("a", "b", "c")]
    assert circles({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c"}, "e": {"f"}, "f": set()}) == [("a", "b"), ("c", "d")]
    assert circles({"a": {"a"}}) == [("a",)]


def test_imports_are_told_apart_by_when_they_happen():
    source = """
import a.b
try:
    from c import d, e
except ImportError:
    pass
if TYPE_CHECKING:
    from f import G
def h():
    import i
class J:
    import k
"""
    found = imports_in(source, lambda name: name == "c.d")
    assert {(name, "load") for name in ("a.b", "c.d", "c", "k")} | {("f", "types"), ("i", "call")} == found


def test_a_module_loads_the_packages_around_what_it_imports_but_not_its_own():
    graph = run_time_graph()
    assert "specserve.protocols" in graph["specserve.builtin"] | graph["specserve.api"]
    assert "specserve" in graph["repeat_plugin.plugin"]
    assert "specserve_server.cli" not in graph["specserve_server.cli.generate"]
