"""A plugin's recorder records the steps in place of the core's; what is no recorder stops start-up."""

from __future__ import annotations

import pytest

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import PluginError
from specserve.hookspecs import hookimpl
from specserve_graphs.reference_recorder import ReferenceRecorder
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import varied_requests


class CountingRecorder(ReferenceRecorder):
    name = "counting"

    def __init__(self):
        super().__init__()
        self.num_recordings = 0

    def record(self, function):
        self.num_recordings += 1
        return super().record(function)


class Brings:
    def __init__(self, recorder):
        self.recorder, self.devices = recorder, []

    @hookimpl
    def make_recorder(self, device):
        self.devices.append(device)
        return self.recorder


def engine_with(model, *plugins, graphs="full"):
    names = [f"brings{i}" for i in range(len(plugins))]
    extra = {
        name: InProcessPlugin(plugin, PluginDeclaration(name=name, provides={"server.routes": "a test's"}))
        for name, plugin in zip(names, plugins, strict=True)
    }
    return make_engine(model, plugins=("cpu",), extra=extra, graphs=graphs, allow_undeclared=True).engine


def test_it_records_every_graph_and_changes_no_token(toy_model):
    requests, brings = varied_requests(12), Brings(CountingRecorder())
    engine = engine_with(toy_model, brings)
    assert run_requests(engine, requests).decided() == plain_run(toy_model, requests, plugins=("cpu",)).decided()
    assert brings.devices == ["cpu"]
    assert brings.recorder.num_recordings == len(engine.runner.library.recorded) > 0


def test_it_is_not_asked_for_where_graphs_are_off(toy_model):
    brings = Brings(CountingRecorder())
    engine_with(toy_model, brings, graphs="none")
    assert brings.devices == []


@pytest.mark.parametrize("recorder", [object(), CountingRecorder])
def test_what_is_no_recorder_is_refused_with_its_plugin(toy_model, recorder):
    with pytest.raises(PluginError, match=r"brings0 answers make_recorder with a .*Recorder"):
        engine_with(toy_model, Brings(recorder))


def test_two_are_refused(toy_model):
    with pytest.raises(
        PluginError, match="brings0 and brings1 both answer make_recorder, which only one plugin may own"
    ):
        engine_with(toy_model, Brings(CountingRecorder()), Brings(CountingRecorder()))
