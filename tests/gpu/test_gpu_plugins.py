"""On the device: adapters and draft models, each where its plugin is installed (docs/gpu.md). Tokens, not speed."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

import pytest
from sizes import DRY, NUM_REQUESTS

from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

pytestmark = pytest.mark.gpu
COMMON = {"device": "cuda", "dtype": "bfloat16"}
KINDS = ("standalone", "eagle3", "eagle3-two-layers", "eagle", "mtp")


def needs(name):
    try:
        distribution(f"specserve-plugin-{name}")
    except PackageNotFoundError:
        pytest.skip(f"specserve-plugin-{name} is not installed here")


@pytest.mark.parametrize("architecture", ["llama"] if DRY else ["llama", "qwen2", "qwen3"])
def test_adapters_in_one_batch_are_lossless_and_those_of_a_request_alone(tmp_path, architecture):
    needs("lora")
    from toy_adapters import lora_engine, under, write_adapters

    model = write_checkpoint(tmp_path / "model", architecture=architecture)
    adapters = write_adapters(tmp_path / "adapters", model, 6)
    requests = varied_requests(NUM_REQUESTS)
    names = [[None, *adapters][i % 7] for i in range(len(requests))]

    def decided(drafter=None, **options):
        engine, store = lora_engine(model, adapters, drafter, **COMMON, **options)
        return run_requests(engine, under(store, requests, names))

    plain = decided(max_num_seqs=8)
    assert decided(max_num_seqs=1).decided() == plain.decided()
    drafted = decided(NoisyDrafter(plain.tokens(), p=0.7, max_width=6, vocab_size=TOY_VOCAB), max_num_seqs=8)
    assert drafted.decided() == plain.decided()
    assert not drafted.metrics.drafter_faults
    assert plain.decided() != run(model, requests, **COMMON).decided(), "adapters change something"


def written(path, kind, target):
    from eagle_engines import write_draft
    from toy_heads import random_head, with_second_layer, write_head

    if kind != "eagle3-two-layers":
        return write_draft(path, kind, target)
    head = with_second_layer(random_head("eagle3"))
    return write_head(path, "specforge", head, num_hidden_layers=2, eagle_aux_hidden_state_layer_ids=[0, 1, 2])


@pytest.mark.parametrize("settings", [{"steps": 3}, {"steps": 3, "topk": 3}], ids=["chains", "trees"])
@pytest.mark.parametrize("kind", KINDS)
def test_draft_models_are_lossless_and_draft_what_they_draft_on_the_cpu(tmp_path, kind, settings):
    needs("eagle")
    from eagle_engines import eagle_engine, write_target

    target = write_target(tmp_path / "target")
    draft = written(tmp_path / "draft", kind, target)
    requests = [
        toy_request(f"b{i}", (5, 6, 6 + i), max_tokens=24, logit_bias={6: 9.0, 7: 8.0}, seed=i, temperature=0.4 * i)
        for i in range(4)
    ] + varied_requests(NUM_REQUESTS // 2, vocab_size=64)
    plain = run(target, requests, **COMMON)
    drafted = run_requests(eagle_engine(target, draft, settings=settings, **COMMON), requests)
    assert not drafted.metrics.drafter_faults
    assert drafted.decided() == plain.decided()
    assert accepted(drafted)[0] > 0


@pytest.mark.parametrize("kind", KINDS)
def test_in_float32_a_draft_model_is_accepted_as_often_as_on_the_cpu(tmp_path, kind):
    needs("eagle")
    from eagle_engines import eagle_engine, write_target

    target = write_target(tmp_path / "target")
    draft = written(tmp_path / "draft", kind, target)
    requests = [toy_request(str(i), range(1 + i, 12 + i), max_tokens=20, ignore_eos=True) for i in range(4)]
    counts = [
        accepted(run_requests(eagle_engine(target, draft, dtype="float32", device=device), requests))
        for device in ("cpu", "cuda")
    ]
    assert counts[0] == counts[1]
