"""Which components import which, for types too: a component is a package of the core, or another distribution.

A component may import what its line lists and nothing else, and every line lists only components above it. The same
holds for the packages of the server, of the workbench and of the bench among themselves.
"""

from __future__ import annotations

import pytest
from import_graph import imports_of, modules

COMPONENTS = {
    "root": "",  # types, config, errors, faults, metrics and other modules without a folder
    "declare": "root",
    "kv": "root",
    "batch": "kv root",
    "protocols": "batch kv root",
    "models": "batch kv protocols root",
    "hookspecs": "models protocols root",
    "plugins": "declare hookspecs root",
    "text": "protocols root",
    "sampling": "batch protocols root",
    "kernels": "batch models protocols sampling",
    "attention": "batch kernels kv protocols root",
    "speculation": "batch protocols root",
    "guards": "batch models plugins protocols speculation root",
    "builtin": "attention hookspecs kernels models protocols sampling",
    "engine": "attention batch guards kv models plugins protocols sampling speculation text root",
    "api": "attention batch declare engine hookspecs kernels kv models protocols sampling speculation text root",
    "command": "engine plugins text root",
    "specserve_page": "",  # static files and their routes, which the server finds by an entry point
    "specserve_draft_models": "batch models protocols sampling root",
    "specserve_server": "batch command engine guards models plugins protocols sampling text root",
    "specserve_workbench": "batch declare engine guards hookspecs models plugins protocols sampling speculation "
    "text specserve_server root",
    "specserve_bench": "batch command engine models plugins protocols text specserve_server specserve_workbench root",
    "specserve_ray": "engine kv plugins specserve_server root",
}
"""The server is imported by the workbench where it is installed, and otherwise missed by commands only."""
BELOW_ALL = "specserve_checks"
"""Every component may import it, and it imports none."""
ROOMS = {
    "specserve_server": {
        "templates": "",
        "root": "templates",  # the configuration, the engine as the server sees it, errors, what plugins say of routes
        "bodies": "root",
        "generation": "bodies templates root",
        "tools": "bodies generation templates",
        "state": "generation root",
        "traces": "generation state root",
        "wire": "bodies state root",
        "serving": "bodies generation state tools wire root",
        "chat": "bodies generation serving templates tools wire root",
        "completions": "bodies generation serving root",
        "messages": "bodies chat generation serving state templates tools wire root",
        "responses": "bodies chat generation serving state tools wire root",
        "operations": "bodies chat generation state templates wire root",
        "openapi": "bodies chat completions messages operations responses state wire root",
        "cli": "root",
        "engines": "cli generation openapi state templates root",
        "app": "chat completions engines generation messages openapi operations responses state tools traces wire root",
        "engine_process": "app engines generation state templates traces wire root",
        "http_process": "app engine_process engines state root",
        "commands": "app cli engine_process engines http_process templates traces root",
    },
    "specserve_workbench": {
        "root": "",
        "testing": "",
        "scaffold": "",
        "doctor": "testing root",
        "commands": "doctor scaffold testing root",
    },
    "specserve_bench": {
        "given": "",
        "prompts": "",
        "client": "prompts",
        "load": "client",
        "figures": "client",
        "output": "",
        "served": "",
        "serve": "client figures given load output prompts",
        "sweep": "client figures given output serve served",
        "replay": "given output",
        "roofline": "given output",
        "root": "replay roofline serve sweep",
    },
}
"""The packages within a distribution."""
USED_BY_PLUGINS = {
    "specserve_adaptive": "api",
    "specserve_cpu": "api",
    "specserve_cuda": "api",
    "specserve_eagle": "api models specserve_draft_models",  # models: it trains for whole targets, and drafts with some
    "specserve_gguf": "api",
    "specserve_grammar": "api",
    "specserve_graphs": "api",
    "specserve_hybrid_attn": "api",
    "specserve_kv_events": "api specserve_server",
    "specserve_lora": "api specserve_server",
    "specserve_ngram": "api specserve_server",
    "specserve_quantised": "api",
    "specserve_tensor_parallel": "api",
    "specserve_transformers": "api",
    "repeat_plugin": "api",
}
"""One door: what plugins import beside `specserve.api` is an exception."""
OF_THE_PLUGIN_API = {"declare", "hookspecs", "builtin"}


def package_in(module: str) -> str:
    _, *rest = module.split(".")
    return rest[0] if rest and (len(rest) > 1 or modules()[module].name == "__init__.py") else "root"


def component_of(module: str) -> str:
    distribution, *rest = module.split(".")
    if distribution != "specserve":
        return distribution
    if rest == ["__main__"]:
        return "command"
    return rest[0] if rest and rest[0] in OF_THE_PLUGIN_API else package_in(module)


def imports_by_target(component: str) -> dict[str, set[str]]:
    """The components that `component` imports, with the import statements of each."""
    found: dict[str, set[str]] = {}
    for module in modules():
        if component_of(module) == component:
            for name, _ in imports_of(module):
                if name in modules() and component_of(name) != component:
                    found.setdefault(component_of(name), set()).add(f"{module} imports {name}")
    return found


def test_every_component_is_in_the_order():
    known = {*COMPONENTS, *USED_BY_PLUGINS, BELOW_ALL, "specserve_demo"}
    assert {component_of(module) for module in modules()} == known
    assert not imports_by_target(BELOW_ALL)


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_comes_after_all_that_it_may_import(component):
    assert set(COMPONENTS[component].split()) <= set(list(COMPONENTS)[: list(COMPONENTS).index(component)])


@pytest.mark.parametrize("component", COMPONENTS | USED_BY_PLUGINS)
def test_a_component_imports_only_what_it_may(component):
    allowed = (COMPONENTS | USED_BY_PLUGINS)[component].split()
    found = imports_by_target(component)
    if component in COMPONENTS:
        found.pop(BELOW_ALL, None)
    assert not [imports for target, imports in found.items() if target not in allowed]
    assert set(allowed) <= found.keys(), "a line lists no component that is not imported"


@pytest.mark.parametrize(("distribution", "room"), [(name, room) for name, rooms in ROOMS.items() for room in rooms])
def test_a_package_imports_only_those_of_its_distribution_that_it_may(distribution, room):
    rooms = ROOMS[distribution]
    found = {
        package_in(name)
        for module in modules()
        if module.split(".")[0] == distribution and package_in(module) == room
        for name, _ in imports_of(module)
        if name in modules() and name.split(".")[0] == distribution
    }
    assert found - {room} == set(rooms[room].split())
    assert found - {room} <= set(list(rooms)[: list(rooms).index(room)])


@pytest.mark.parametrize("distribution", ROOMS)
def test_every_package_of_a_distribution_is_in_the_order(distribution):
    assert {package_in(module) for module in modules() if module.split(".")[0] == distribution} == set(
        ROOMS[distribution]
    )
