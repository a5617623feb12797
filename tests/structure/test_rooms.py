"""Which part of the core knows which others, for types too: a room is a package, or a module that plugins import.

A room may import what stands in its line and nothing else, and every line lists only rooms above it.
"""

from __future__ import annotations

import pytest
from import_graph import imports_of, modules

ROOMS = {
    "root": "",  # types, config, errors, faults, metrics and other modules without a folder
    "declare": "root",
    "kv": "root",
    "batch": "kv root",
    "protocols": "batch kv root",
    "hookspecs": "protocols root",
    "plugins": "declare hookspecs root",
    "text": "protocols root",
    "sampling": "batch protocols root",
    "models": "batch protocols root",
    "kernels": "batch models protocols sampling",
    "attention": "batch kernels kv plugins protocols root",
    "speculation": "batch root",
    "guards": "batch plugins protocols speculation root",
    "builtin": "attention hookspecs kernels protocols sampling root",
    "engine": "attention batch guards kv models plugins protocols sampling speculation text root",
    "server": "protocols sampling text root",
    "cli": "declare engine plugins server text root",
    "testing": "batch declare engine guards hookspecs models plugins protocols sampling speculation root",
}
USED_BY_PLUGINS = {
    "specserve_cpu": "batch declare hookspecs kv models protocols sampling root",
    "specserve_hybrid_attn": "attention batch declare hookspecs kv protocols root",
    "specserve_lora": "batch declare hookspecs models protocols server root",
    "specserve_ngram": "batch declare hookspecs models protocols server text root",
    "specserve_repeat": "batch declare hookspecs protocols root",
}
OF_THE_PLUGIN_API = {"declare", "hookspecs", "builtin"}


def room_of(module: str) -> str:
    distribution, *rest = module.split(".")
    if distribution != "specserve":
        return distribution
    if rest == ["__main__"]:
        return "cli"
    is_package = len(rest) > 1 or modules()[module].name == "__init__.py"
    return rest[0] if rest and (is_package or rest[0] in OF_THE_PLUGIN_API) else "root"


def arrows_from(room: str) -> dict[str, set[str]]:
    """Rooms that a room imports, each with the imports that do it."""
    found: dict[str, set[str]] = {}
    for module in modules():
        if room_of(module) == room:
            for name, _ in imports_of(module):
                if name in modules() and room_of(name) != room:
                    found.setdefault(room_of(name), set()).add(f"{module} imports {name}")
    return found


def test_every_room_is_in_the_order():
    assert {room_of(module) for module in modules()} == {*ROOMS, *USED_BY_PLUGINS, "specserve_demo"}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_comes_after_all_that_it_may_import(room):
    assert set(ROOMS[room].split()) <= set(list(ROOMS)[: list(ROOMS).index(room)])


@pytest.mark.parametrize("room", ROOMS | USED_BY_PLUGINS)
def test_a_room_imports_only_what_it_may(room):
    allowed = (ROOMS | USED_BY_PLUGINS)[room].split()
    found = arrows_from(room)
    assert not [imports for target, imports in found.items() if target not in allowed]
    assert set(allowed) <= found.keys(), "a line lists no room that is not imported"
