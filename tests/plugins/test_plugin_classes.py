"""An entry point may name a class: each engine has an instance of its own, whose hooks share what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specserve.errors import PluginError

if TYPE_CHECKING:
    from fake_site import Install, Start

SHARING = """
from specserve.hookspecs import hookimpl

class Plugin:
    made = 0

    def __init__(self):
        Plugin.made += 1
        self.drafters = []

    @hookimpl
    def make_drafter(self):
        self.drafters.append(f"drafter of {Plugin.made}")
        return self.drafters[-1]

    @hookimpl
    def make_observer(self):
        return self.drafters
"""


def test_the_hooks_of_one_instance_share_its_state(install: Install, start: Start) -> None:
    install("a", plugin=SHARING, entry="plugin:Plugin")
    host = start("a")
    assert host.collect("make_drafter", model=None) == [("a", "drafter of 1")]
    assert host.collect("make_observer") == [("a", ["drafter of 1"])]


def test_every_engine_has_an_instance_of_its_own(install: Install, start: Start) -> None:
    install("a", plugin=SHARING, entry="plugin:Plugin")
    first, second = start("a"), start("a")
    first.collect("make_drafter", model=None)
    assert second.collect("make_observer") == [("a", [])]


def test_one_instance_is_made_though_a_default_plugin_fails(install: Install, start: Start) -> None:
    install("a", plugin=SHARING, entry="plugin:Plugin")
    install("cpu", provides="kernel.cpu", plugin="raise OSError('no such library')")
    host = start("a")
    assert "cpu" in host.decision.switched_off
    assert host.collect("make_drafter", model=None) == [("a", "drafter of 1")]


def test_a_class_that_raises_stops_start_up_with_the_reason(install: Install, start: Start) -> None:
    broken = SHARING.replace("Plugin.made += 1", "raise OSError('no such library')")
    install("a", plugin=broken, entry="plugin:Plugin")
    said = r"a \(dist-a 1.0\) failed to make its Plugin without arguments: OSError: no such library \(.*plugin\.py:8\)"
    with pytest.raises(PluginError, match=said):
        start("a")


def test_a_class_that_wants_arguments_is_refused(install: Install, start: Start) -> None:
    install("a", plugin=SHARING.replace("(self):", "(self, options):", 1), entry="plugin:Plugin")
    with pytest.raises(PluginError, match=r"failed to make its Plugin without arguments: TypeError: .*options"):
        start("a")


def test_a_misspelt_class_is_named_with_the_nearest_one(install: Install, start: Start) -> None:
    install("a", plugin=SHARING, entry="plugin:Plugn")
    with pytest.raises(PluginError, match=r"fake_a\.plugin has no class Plugn; did you mean 'Plugin'\? Correct"):
        start("a")


def test_what_is_no_class_is_refused(install: Install, start: Start) -> None:
    install("a", plugin=SHARING + "\nplugin = Plugin()\n", entry="plugin:plugin")
    with pytest.raises(PluginError, match=r"plugin in fake_a\.plugin is a Plugin and must be a class\. Correct"):
        start("a")


def test_a_misspelt_hook_of_a_class_stops_start_up(install: Install, start: Start) -> None:
    install("a", plugin=SHARING.replace("make_observer", "make_observr"), entry="plugin:Plugin")
    with pytest.raises(PluginError, match=r"a implements 'make_observr'.*did you mean 'make_observer'"):
        start("a")


def test_a_hook_of_a_class_without_its_marker_stops_start_up(install: Install, start: Start) -> None:
    unmarked = SHARING + "\n    def make_verifier(self):\n        return None\n"
    install("a", plugin=unmarked, entry="plugin:Plugin")
    with pytest.raises(PluginError, match=r"plugin a defines make_verifier \(.*plugin\.py:20\) without the marker"):
        start("a")


def test_the_lines_that_are_missing_name_the_package_of_the_class(install: Install, start: Start) -> None:
    install("a", plugin=SHARING, entry="plugin:Plugin")
    install("b", provides="lora.target")
    with pytest.raises(PluginError, match=r'"lora\.target" = "fake_a\.compat:CONSTANT"'):
        start("a", "b")
