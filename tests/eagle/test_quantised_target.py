"""Heads beside a target whose embedding and maps are kept quantised: they read its tokens' vectors."""

from __future__ import annotations

import torch
from coded_checkpoints import MIXED, CodedWeights, format_plugin, write_coded, write_dense
from eagle_engines import FORMS, Recorder, drafter_of, eagle_engine, write_draft, write_target
from safetensors.torch import load_file

from covering import covering
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request

METHOD = CodedWeights(MIXED)


@covering(("kind", "kernels"), ("kernels", "tied"), kernels=["torch", "cpu"], kind=FORMS, tied=[False, True])
def test_a_head_has_the_vectors_of_the_target_and_its_drafts_change_nothing(tmp_path, tied, kind, kernels):
    source = write_target(tmp_path / "source", tie_word_embeddings=tied)
    coded, dense = write_coded(source, tmp_path / "coded"), write_dense(source, tmp_path / "dense", METHOD)
    draft = write_draft(tmp_path / "draft", kind, coded)
    options = {"extra": format_plugin(METHOD), "beside": ("cpu",) if kernels == "cpu" else ()}
    engine = eagle_engine(coded, draft, **options)
    vectors = load_file(dense / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(drafter_of(engine).model.head.decoder.embedding, vectors)
    requests = [
        toy_request(f"{i}", range(i, 9 * i + 4), max_tokens=20, temperature=0.7 * (i % 2), seed=i, logprobs=2)
        for i in range(6)
    ]
    drafted = run_requests(engine, requests).decided()
    assert engine.metrics.num_draft_tokens > 20
    assert not engine.metrics.drafter_faults
    plain = eagle_engine(coded, draft, planner=Recorder(verifies=False), **options)
    assert run_requests(plain, requests).decided() == drafted
    assert plain.metrics.num_accepted_tokens == 0
