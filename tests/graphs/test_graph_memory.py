"""What graphs take: addresses that stay, the bound on memory, recordings that fail, start-up, and wrong settings."""

from __future__ import annotations

import random

import msgspec
import pytest
from graph_runs import steps_of

from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve.faults import BadAnswerError
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_graphs.buckets import Buckets, doubling, row_buckets
from specserve_graphs.reference_recorder import ReferenceRecorder
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import drafter_plugin, make_engine, plain_run, run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

CPU = {"plugins": ("cpu",)}


class RandomWidths(FixedWidthPlanner):
    """Another number of draft tokens of every request in every step."""

    def __init__(self, seed):
        super().__init__(16)
        self.random = random.Random(seed)

    def limits(self, requests):
        return [self.random.randint(0, 5) if most else 0 for most in super().limits(requests)]


PLANNED = {"plugins": ("cpu", "adaptive"), "plugin_options": {"adaptive": {"cost_cache": "none"}}}


@pytest.mark.parametrize(
    ("planner", "options", "least_steps", "least_graphs"),
    [(RandomWidths(1), CPU, 500, 10), (None, PLANNED, 100, 5)],
    ids=["random", "adaptive"],
)
def test_hundreds_of_steps_of_many_widths_move_nothing(toy_model, planner, options, least_steps, least_graphs):
    requests = [
        toy_request(str(i), range(1, 5 + i % 40), max_tokens=200, ignore_eos=True, seed=i, temperature=(i % 2) * 0.8)
        for i in range(90)
    ]
    plain = plain_run(toy_model, requests, **CPU)
    drafter = OracleDrafter(plain.tokens(), 12)
    extra = {"drafter": drafter_plugin(lambda: drafter, planner)}
    engine = make_engine(toy_model, extra=extra, graphs="full", **options).engine
    memory, seen, forward = engine.runner.memory, {}, engine.runner.forward

    def addresses_of(recorded):
        padded = recorded.padded
        of_bucket = padded.input_ids, padded.positions, padded.slots, recorded.plan.plan.slots
        shared = memory.x, memory.logits, memory.greedy, memory.queries, memory.attended
        return [tensor.data_ptr() for tensor in (*of_bucket, *shared)], id(recorded.plan.plan)

    def watched(batch):
        output = forward(batch)
        for key, recorded in engine.runner.library.recorded.items():
            if key.mode == "full":
                assert seen.setdefault(key, addresses_of(recorded)) == addresses_of(recorded)
        return output

    engine.runner.forward = watched
    assert run_requests(engine, requests).decided() == plain.decided()
    assert engine.metrics.num_steps >= least_steps
    assert steps_of(engine.metrics).full > 0.8 * least_steps
    assert len(seen) > least_graphs


def test_where_memory_is_used_up_steps_run_without_a_graph(toy_model):
    plain = run(toy_model, varied_requests(8), **CPU)
    engine = make_engine(toy_model, graphs="full", **CPU).engine
    library = engine.runner.library
    recorded = run_requests(engine, varied_requests(2)).metrics.num_steps
    before = len(library.recorded)
    library.budget.max_bytes = library.budget.num_bytes - 1
    assert run_requests(engine, varied_requests(8)).decided() == plain.decided()
    assert len(library.recorded) == before
    reason = f"the memory of graphs is used up: --graph-memory allows {library.budget.max_bytes} bytes"
    assert steps_of(engine.metrics).reasons == {reason}
    assert 0 < engine.metrics.graph_steps["none", reason] < engine.metrics.num_steps - recorded


def test_a_recording_that_fails_is_a_reason_and_nothing_else(toy_model):
    requests = varied_requests(8)
    plain = plain_run(toy_model, requests, **CPU)
    engine = make_engine(toy_model, graphs="full", **CPU).engine
    recorder, failing = engine.runner.library.budget.recorder, []
    record = recorder.record

    def sometimes(function):
        failing.append(len(failing) % 3 == 0)
        if failing[-1]:
            raise MemoryError("out of device memory\nsecond line")
        return record(function)

    recorder.record = sometimes
    assert run_requests(engine, requests).decided() == plain.decided()
    steps = steps_of(engine.metrics)
    assert steps.reasons == {"its recording raised MemoryError"}
    assert min(steps.full, steps.piecewise) > 0
    assert sum(failing) == len(engine.runner.library.failed), "each is tried once"
    assert {plugin for plugin, *_ in engine.metrics.faults.counts} == {"graphs"}


def test_a_replay_of_other_pieces_than_were_recorded_is_refused():
    calls, pieces = [], [2]

    def function(cut):
        for i in range(pieces[0]):
            cut(lambda i=i: calls.append(i))

    recording = ReferenceRecorder().record(function)
    assert calls == [], "actions do not run while they are recorded"
    recording.replay()
    assert calls == [0, 1]
    pieces[0] = 3
    with pytest.raises(BadAnswerError, match="replayed in 4 pieces, and recorded in 3"):
        recording.replay()


def test_warm_up_records_what_steps_need_and_shows_it(toy_model):
    from specserve.engine.assembly import assemble
    from specserve.plugins.host import PluginHost

    config = EngineConfig(
        model=str(toy_model), graphs="full", graph_warm_up=True, graph_buckets=(1, 2, 4, 8), default_plugins=False,
        plugins=("cpu", "graphs"), max_num_seqs=4, max_num_batched_tokens=64, kv_memory="8M",
    )  # fmt: skip
    shown = []
    drafter = {"drafter": drafter_plugin(lambda: OracleDrafter({}, 4))}  # measures step costs before
    host = PluginHost.start(msgspec.structs.replace(config, plugins=("cpu", "graphs", "drafter")), drafter)
    engine = assemble(config, host, lambda *progress: shown.append(progress)).engine
    graphs = [progress for progress in shown if progress[0] == "recording graphs"]
    count = len(engine.runner.library.recorded)
    assert graphs == [("recording graphs", i, count) for i in range(1, count + 1)]
    assert {(key.mode, key.rows, key.requests) for key in engine.runner.library.recorded} == {
        *(("piecewise", rows, 0) for rows in (1, 2, 4, 8)),
        *(("full", rows, requests) for rows in (1, 2, 4, 8) for requests in (1, 2, 4) if requests <= rows),
    }
    run_requests(engine, [toy_request(str(i), range(1, 3), max_tokens=9, seed=i) for i in range(4)])
    assert len(engine.runner.library.recorded) == count
    assert steps_of(engine.metrics).none == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"graphs": "some"}, "graphs must be one of auto, none, piecewise, full; got 'some'"),
        ({"graph_buckets": ()}, "graph_buckets are ascending numbers of rows, such as 1,2,4,8; got none"),
        ({"graph_buckets": (4, 2)}, "such as 1,2,4,8; got 4,2"),
        ({"graph_buckets": (0, 2)}, "such as 1,2,4,8; got 0,2"),
        ({"graph_buckets": (2, 2)}, "such as 1,2,4,8; got 2,2"),
        ({"graph_buckets": (8, 1024)}, "graph_buckets end at 1024 rows, and no step has more than 512"),
        ({"graph_memory": "much"}, "graph_memory must be a positive number"),
    ],
)
def test_wrong_settings_are_refused(fields, said):
    with pytest.raises(ConfigError, match=said):
        EngineConfig(**fields)


def test_too_little_memory_for_the_buffers_is_refused_with_what_to_do(toy_model):
    with pytest.raises(ConfigError, match=r"buffers of graphs for 256 rows take \d+ bytes; got room for 65536\. Give"):
        make_engine(toy_model, graphs="full", graph_memory="64K", graph_buckets=(1, 256), **CPU)
    engine = make_engine(toy_model, graphs="full", graph_memory="1M", **CPU).engine
    assert engine.runner.memory.num_bytes <= 2**20
    assert engine.runner.settings.rows.largest < 512, "the largest buckets were left out"


def test_buckets():
    assert row_buckets(40).sizes == (1, 2, 4, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40)
    assert row_buckets(1).sizes == (1,)
    assert row_buckets(3).sizes == (1, 2, 3)
    assert doubling(6).sizes == (1, 2, 4, 6)
    buckets = Buckets((8, 2, 4))
    assert [buckets.holding(count) for count in (1, 2, 3, 8, 9)] == [2, 2, 4, 8, None]


def test_auto_records_on_cuda_alone():
    assert [EngineConfig(device=device).graph_mode for device in ("cpu", "cuda")] == ["none", "full"]
    assert EngineConfig(device="cuda", graphs="piecewise").graph_mode == "piecewise"
