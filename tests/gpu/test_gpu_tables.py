"""On the device: tables for a reader, without thresholds. They need the device alone, so `-m table` runs them apart."""

from __future__ import annotations

import time
from functools import partial

import pytest
import torch
from sizes import DRY

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import toy_request

pytestmark = [pytest.mark.gpu, pytest.mark.table]
DEMO_VOCAB = 8192
COUNTS = (2,) if DRY else (1, 8, 32)
TOKENS = 4 if DRY else 64


def seconds(engine, requests):
    torch.cuda.synchronize()
    began = time.perf_counter()
    outcome = run_requests(engine, requests)
    torch.cuda.synchronize()
    return time.perf_counter() - began, outcome.tokens()


def test_tokens_per_second(demo_model, capsys):
    """The demo model in bfloat16, greedy tokens after prompts of 64."""
    options = {"device": "cuda", "dtype": "bfloat16", "kv_memory": "1G", "max_num_seqs": 32, "prefix_cache": False}
    lines = [f"{torch.cuda.get_device_name()}: tokens/s   plain   oracle (8 guesses a step)"]
    for count in COUNTS:
        requests = [
            toy_request(str(i), [(7 * i + j) % DEMO_VOCAB for j in range(64)], max_tokens=TOKENS, ignore_eos=True)
            for i in range(count)
        ]
        plain = make_engine(demo_model, **options).engine
        seconds(plain, requests)  # compiles
        took, tokens = seconds(plain, requests)
        drafted = make_engine(demo_model, OracleDrafter(tokens, 8), **options).engine
        seconds(drafted, requests)
        oracle_took, oracle_tokens = seconds(drafted, requests)
        assert oracle_tokens == tokens
        lines.append(f"{count:3d} requests {TOKENS * count / took:16.0f} {TOKENS * count / oracle_took:8.0f}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))


class Planning:
    """Verifies up to eight draft tokens of each request, and needs no measured costs."""

    @hookimpl
    def make_draft_planner(self):
        return FixedWidthPlanner(8)


PLANNING = InProcessPlugin(Planning(), PluginDeclaration(name="planning", provides={"planner.adaptive": "a test's"}))


def drafting(name):
    """Options of an engine that drafts with this plugin; None where that is not installed here."""
    from specserve.plugins.discovery import discover

    if name == "plain":
        return {}
    if name not in discover():
        return None
    return {
        "plugins": (name,),
        "plugin_options": {"eagle": {"model": "demo-eagle3", "steps": 3}} if name == "eagle" else {},
    }


def test_graphs_and_drafts(demo_model, capsys):
    """The demo model in bfloat16: eager steps, piecewise graphs and full ones, without drafts and with two kinds. A
    draft model's attention is sdpa, which has no full graphs."""
    from cuda_references import hybrid_plugin

    common = {"device": "cuda", "dtype": "bfloat16", "kv_memory": "1G", "max_num_seqs": 32, "prefix_cache": False}
    common["allow_undeclared"] = True  # hybrid_attn is given as an object, whose declarations are not read
    hybrid = {"hybrid_attn": {"prefill": "triton_paged", "decode": "auto", "verify": "triton_paged"}}
    lines = [f"{torch.cuda.get_device_name()}: tokens/s     none  piecewise  full   replays, bytes of graphs"]
    for name in ("plain", "ngram", "eagle"):
        options = drafting(name)
        if options is None:
            lines.append(f"{name}: its plugin is not installed here")
            continue
        tables = hybrid | options.pop("plugin_options", {})
        for count in COUNTS:
            requests = [
                toy_request(str(i), [(7 * i + j) % 97 for j in range(64)], max_tokens=TOKENS, ignore_eos=True)
                for i in range(count)
            ]
            cells, expected, said = [], None, ""
            for graphs in ("none", "piecewise", "full"):
                engine = make_engine(
                    demo_model, extra={"hybrid_attn": hybrid_plugin(), "planning": PLANNING}, plugin_options=tables,
                    graphs=graphs, **common, **options,
                ).engine  # fmt: skip
                seconds(engine, requests)  # compiles and captures
                took, tokens = seconds(engine, requests)
                expected = expected or tokens
                assert tokens == expected, (name, count, graphs)
                cells.append(f"{TOKENS * count / took:8.0f}")
                if graphs == "full":
                    modes = dict.fromkeys(("full", "piecewise", "none"), 0)
                    for (mode, _), steps in engine.metrics.graph_steps.items():
                        modes[mode] += steps
                    said = f"{modes} {engine.runner.library.budget.num_bytes}"
            lines.append(f"{name:6s} {count:3d} requests {' '.join(cells)}   {said}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))


def microseconds(run):
    for _ in range(3):
        run()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(20):
        run()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1000 / 20


def test_a_layer_of_attention(capsys):
    """To tune `tile_config_for`. One layer of 32 heads, 8 key heads of 128, bfloat16."""
    from paged_backends import backend_of
    from paged_cases import NUM_SLOTS, Shape, World

    from specserve.attention.sdpa import SdpaAttention
    from specserve_cuda.attention.paged_kernels import TritonPaged

    lines = [f"{torch.cuda.get_device_name()}: microseconds a layer   triton_paged   sdpa"]
    for length in (128,) if DRY else (128, 1000, NUM_SLOTS - 64):
        for width in (1,) if DRY else (1, 8, 32):
            world = World(Shape(16, 32, 8, 128, dtype=torch.bfloat16), "cuda")
            batch = world.builder.schedule([world.prompt(length, width)])
            tables, ours = world.rows(width), backend_of(world, TritonPaged)
            theirs = SdpaAttention(world.spec, world.cache, world.device, torch.bfloat16)
            took = [microseconds(partial(b.forward, 0, *tables, b.plan(batch))) for b in (ours, theirs)]
            lines.append(f"{length:6d} keys, {width:2d} rows {took[0]:26.0f} {took[1]:6.0f}")
    with capsys.disabled():
        print("\n" + "\n".join(lines))


@pytest.mark.skipif(DRY, reason="there is no device to trace")
@pytest.mark.parametrize("count", [1, 32])
def test_where_a_decode_step_goes(demo_model, count, capsys):
    """20 steps under torch's profiler: time on the host and on the device by operation and kernel."""
    from torch.profiler import ProfilerActivity, profile

    engine = make_engine(demo_model, device="cuda", dtype="bfloat16", kv_memory="1G", max_num_seqs=32).engine
    for i in range(count):
        request = toy_request(str(i), range(1, 64 + i), max_tokens=64, ignore_eos=True)
        engine.check(request)
        engine.add(request)
    for _ in range(12):
        engine.step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        began = time.perf_counter()
        for _ in range(20):
            engine.step()
        torch.cuda.synchronize()
        took = time.perf_counter() - began
    with capsys.disabled():
        print(f"\n{count} requests: {took * 50:.2f} ms a step under the profiler")
        for key in ("self_cuda_time_total", "self_cpu_time_total"):
            print(trace.key_averages().table(sort_by=key, row_limit=14, max_name_column_width=50))
