"""A plugin of a test's own cache observer."""

from __future__ import annotations

from specserve.declare import Compatible, InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.plugins.features import PLUGIN_FEATURES


class ObservingPlugin:
    def __init__(self, observer):
        self.observer = observer

    @hookimpl
    def make_cache_observer(self):
        return self.observer


def in_process(name, observer):
    fits = dict.fromkeys(PLUGIN_FEATURES, Compatible("it only looks"))
    declaration = PluginDeclaration(name=name, provides={"observer.cache": "a test's"}, compatible=fits)
    return {name: InProcessPlugin(ObservingPlugin(observer), declaration)}
