"""The Triton kernels through Triton's interpreter against torch. Run as a script, in a process of its own.

The interpreter multiplies bfloat16 matrices by their bit patterns and rounds to bfloat16 by truncation (Triton
3.6), so the linear is checked in float32 and float16, and the rest in bfloat16 to one unit per rounding.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

if __name__ == "__main__":
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import pytest
import torch
from lowrank_checks import check_segments_get_what_their_adapters_add

from triton_interpreter import mend_the_interpreter
from triton_runs import outcome

ROW_COUNTS = (1, 15, 16, 33, 64, 70)


def kernels():
    from specserve.kernels.torch_kernels import TorchKernels
    from specserve_cuda.kernels.kernel_set import CudaKernels

    torch.manual_seed(0)
    return CudaKernels(), TorchKernels()


def close(ours, theirs, roundings=1, atol=1e-5):
    step = {torch.float32: 2.0**-20, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}[ours.dtype]
    assert ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=step * roundings, atol=atol)


def interpret_linear_equals_float64_at_ragged_edges():
    ours, _ = kernels()
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-3)):
        for width, depth in ((100, 96), (32, 128), (1, 33), (65, 160)):
            x, weight, bias = (torch.randn(*shape).to(dtype) for shape in ((70, depth), (width, depth), (width,)))
            for added in (None, bias):
                exact = x.double() @ weight.double().T + (0 if added is None else bias.double())
                got = ours.linear(x, weight, added)
                assert got.shape == (70, width)
                assert got.dtype == dtype
                torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=tolerance * depth**0.5)


def interpret_linear_takes_slices_of_weights_and_of_inputs():
    ours, _ = kernels()
    x, weight = torch.randn(9, 70), torch.randn(90, 64)
    got = ours.linear(x[2:, 3:67], weight[7:40], None)
    torch.testing.assert_close(got, x[2:, 3:67] @ weight[7:40].T, rtol=1e-5, atol=1e-4)


def interpret_a_row_does_not_depend_on_the_row_count_or_its_place():
    ours, _ = kernels()
    x, gain = torch.randn(70, 96), torch.randn(96)
    # The interpreter multiplies with numpy, whose rounding depends on a row's place on some processors (AMD EPYC).
    # Sums of whole numbers are exact in any order: what remains is the kernel's own masks, offsets and tiles.
    whole_x, weight = (torch.randint(-8, 9, (rows, 96)).float() for rows in (70, 48))
    heads, cos, sin = x[:, :32].unflatten(1, (2, 16)), torch.randn(70, 1, 16), torch.randn(70, 1, 16)
    functions = (
        lambda rows: ours.linear(whole_x[rows], weight, None),
        lambda rows: ours.rms_norm(x[rows], gain, 1e-5),
        lambda rows: ours.rotary(heads[rows], cos[rows], sin[rows]),
        lambda rows: ours.silu_and_multiply(x[rows]),
        lambda rows: ours.gelu_and_multiply(x[rows]),
    )
    for function in functions:
        whole = function(slice(None))
        for count in ROW_COUNTS:
            assert torch.equal(function(slice(0, count)), whole[:count]), count
            assert torch.equal(function(slice(70 - count, None)), whole[70 - count :]), count


def interpret_norm_equals_the_torch_reference():
    ours, reference = kernels()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for shape in ((7, 96), (3, 5, 64), (1, 1, 20)):
            x, gain = 3 * torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)
            close(ours.rms_norm(x, gain, 1e-5), reference.rms_norm(x, gain, 1e-5), roundings=2)
            wide = gain.float() + 1
            close(ours.rms_norm(x, wide, 1e-5), reference.rms_norm(x, wide, 1e-5), roundings=1)
    views = torch.randn(4, 6, 32).split_with_sizes((4, 2), 1)
    close(ours.rms_norm(views[1], torch.ones(32), 1e-6), reference.rms_norm(views[1], torch.ones(32), 1e-6))
    large = torch.full((2, 64), 60000.0, dtype=torch.float16)
    assert torch.equal(ours.rms_norm(large, torch.ones(64).half(), 1e-5), torch.ones_like(large))


def interpret_rotation_equals_the_torch_reference():
    ours, reference = kernels()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for rotary_dim, head_dim in ((64, 64), (16, 64), (20, 20)):
            heads = torch.randn(5, 8, head_dim).to(dtype)[:, :6]  # as the model gives it: the values follow
            cos, sin = torch.randn(2, 5, 1, rotary_dim)
            got, expected = ours.rotary(heads, cos, sin), reference.rotary(heads, cos, sin)
            close(got, expected, atol=1e-3)  # the two products may cancel
            assert torch.equal(got[..., rotary_dim:], heads[..., rotary_dim:])


def interpret_activation_equals_the_torch_reference():
    ours, reference = kernels()
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for size in (48, 1024, 1300):
            x = torch.randn(3, 2 * size).to(dtype)
            close(ours.silu_and_multiply(x), reference.silu_and_multiply(x), roundings=2)
            close(ours.gelu_and_multiply(x), reference.gelu_and_multiply(x), roundings=2)


def interpret_segments_get_what_their_adapters_add():
    for dtype in (torch.float32, torch.float16):
        check_segments_get_what_their_adapters_add(kernels()[0], dtype)


def interpret_edits_of_wrong_tokens_or_lengths_are_refused_when_they_are_recorded():
    from array import array

    from specserve_cuda.kernels.sampler import RecordedEdits

    edits = RecordedEdits(array("q"), 10)
    for make in (
        lambda: edits.shift(array("q", [1, 2]), array("f", [1.0])),
        lambda: edits.penalize(array("q", [1]), array("f"), 1.0, 0.5, 0.0),
        lambda: edits.forbid(array("q", [10])),
        lambda: edits.keep_only(array("q", [-1])),
        lambda: edits.shift(array("i", [1]), array("f", [1.0])),
        lambda: edits.keep_bits(array("I", [1, 2])),
    ):
        with pytest.raises(ValueError, match="an edit"):
            make()
    assert edits.operations == []


def interpret_bits_keep_the_tokens_that_torch_keeps():
    """In words of 64, which the vocabulary need not fill; the rows that lose all tokens are told."""
    from array import array

    from sampled_rows import random_logits

    from specserve.batch.request import Request
    from specserve.faults import RequestFault
    from specserve.protocols import ProcessorState, ScoredRow
    from specserve.sampling.sampler import TorchSampler
    from specserve_cuda.kernels.sampler import TritonSampler
    from specserve_workbench.testing.requests import toy_request

    class Kept(ProcessorState):
        has_edits = True

        def __init__(self, tokens, vocab_size):
            self.bits = array("I", bytes(4 * -(-vocab_size // 32)))
            for token in tokens:
                self.bits[token // 32] |= 1 << token % 32

        def edit(self, edits, path):
            edits.keep_bits(self.bits)

        def apply(self, logits, path):
            from specserve.sampling.edits import TorchRow

            self.edit(TorchRow(logits), path)
            return logits

    def admit(kept, vocab_size, temperature):
        wire = toy_request("r", (1, 2, 3), temperature=temperature, seed=5)
        request = Request.admit(wire, seed=5, arrival=0.0, order=0, max_len=99)
        request.processors, request.processor_parts = [Kept(kept, vocab_size)], [None]
        return request

    for vocab_size in (33, 64, 320, 5000):
        kept = [range(0, vocab_size, 3), [vocab_size - 1], range(vocab_size), [0, 31, 32]]
        requests = [admit(tokens, vocab_size, t) for tokens in kept for t in (0.0, 0.9)]
        logits = random_logits(len(requests), vocab_size)
        rows = [ScoredRow(i, request, ()) for i, request in enumerate(requests)]
        assert TritonSampler().target_tokens(logits, rows) == TorchSampler().target_tokens(logits, rows)
        with pytest.raises(RequestFault, match="left no token"):
            TritonSampler().target_tokens(logits, [rows[0], ScoredRow(1, admit([], vocab_size, 0.9), ())])


def interpret_fused_layers_have_the_bits_of_their_pieces():
    """With and without norms of q and k, with windows, for rows that overflow; keys and values in the cache, too."""
    from specserve.models.loader import load_model
    from specserve.models.tiled import TiledPass
    from specserve_workbench.testing.toy import write_checkpoint

    for family, layers, changes in (("qwen3", 1, {}), ("mistral", 2, {"sliding_window": 3})):
        with tempfile.TemporaryDirectory() as folder:
            path = write_checkpoint(Path(folder), architecture=family, num_hidden_layers=layers, **changes)
            ours, _ = kernels()
            model = load_model(path, kernels=ours, dtype="float32")
        for projection in model.projections.values():
            projection.finalize(ours)
        results, caches = zip(
            *(rows_and_cache(model, make) for make in (ours.fuse, lambda m, attention: TiledPass(m, attention, None))),
            strict=True,
        )
        for one, other in zip(*results, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True)), family
        assert torch.equal(caches[0].data, caches[1].data), family
        assert caches[0].data.any()


def rows_and_cache(model, make_pass):
    """What a pass over SDPA gives for three steps of a request, and its KV cache."""
    from specserve.attention.sdpa import SdpaFactory
    from specserve.kv.cache import KVCache
    from specserve.protocols import AttentionSpec

    spec = AttentionSpec(
        model.num_heads, model.num_kv_heads, model.head_dim, model.scale, 16, tuple(model.sliding_windows)
    )
    sizes = {"num_blocks": 8, "block_size": 16, "num_kv_heads": model.num_kv_heads, "head_dim": model.head_dim}
    cache = KVCache(num_layers=model.num_layers, dtype=model.dtype, device=model.device, **sizes)
    attention = SdpaFactory().build(spec, cache, model.device, model.dtype)
    passes = make_pass(model, attention)
    return [forward_rows(passes, attention, model, rows) for rows in ((0, 4), (4, 5), (5, 7))], cache


def forward_rows(passes, attention, model, rows):
    """Logits and taps of these positions of one request, of which one row overflows."""
    from specserve.batch.builder import BatchBuilder
    from specserve.batch.request import Request
    from specserve.batch.span import ScheduledSpan
    from specserve_workbench.testing.requests import toy_request

    request = Request.admit(toy_request("r", range(3, 40)), seed=0, arrival=0.0, order=0, max_len=99)
    request.blocks = [5, 2, 7]
    begin, end = rows
    batch = BatchBuilder(16, torch.device("cpu")).schedule(
        [ScheduledSpan.of(request, begin, end - begin, scored=end - begin)]
    )
    x = passes.embed(batch).clone()
    if begin == 5:
        x[1] = 3e38
    taps = {layer: x.new_empty(x.shape) for layer in range(model.num_layers + 1)}
    out = passes.layers(x, batch, attention.plan(batch), taps)
    return [passes.logits(out, batch).nan_to_num(), *(tap.nan_to_num() for tap in taps.values())]


def interpret_sampled_tokens_are_those_of_torch():
    """Every cut-off, penalty and path; together and alone. Scores whose last bits differ do not change places here."""
    from sampled_rows import random_logits, varied_rows

    from specserve.protocols import DraftVocabulary
    from specserve.sampling.sampler import TorchSampler
    from specserve_cuda.kernels.sampler import TritonSampler

    ours, reference = TritonSampler(), TorchSampler()
    for vocab_size, count in ((320, 42), (5000, 9)):
        logits, rows = random_logits(count, vocab_size), varied_rows(count, vocab_size)
        before = logits.clone()
        got = ours.target_tokens(logits, rows)
        assert got == reference.target_tokens(logits, rows)
        assert torch.equal(logits, before)
        assert ours.target_tokens(logits, rows[5:2:-1]) == got[5:2:-1]
    assert ours.target_tokens(logits, []) == []
    for vocabulary in (None, DraftVocabulary(torch.arange(5000) * 2, 10_000)):
        for one, other in zip(*(s.draft_tokens(logits, rows, vocabulary, 3) for s in (ours, reference)), strict=True):
            assert [t.token for t in one] == [t.token for t in other]
            torch.testing.assert_close([t.probability for t in one], [t.probability for t in other])


def interpret_an_engine_on_these_kernels_is_lossless_and_says_what_torch_says():
    from specserve import builtin
    from specserve_cuda.kernels.kernel_set import CudaKernels
    from specserve_workbench.testing.drafters import NoisyDrafter
    from specserve_workbench.testing.engines import accepted, assert_lossless, make_engine, run
    from specserve_workbench.testing.requests import TOY_VOCAB, toy_request
    from specserve_workbench.testing.toy import write_checkpoint

    with tempfile.TemporaryDirectory() as folder:
        model = write_checkpoint(Path(folder) / "llama", num_hidden_layers=1)
        requests = [toy_request(str(i), range(1, 6 + 9 * i), max_tokens=5, ignore_eos=True) for i in range(2)]
        expected = run(model, requests, dtype="float32").tokens()
        builtin.TorchKernels = CudaKernels  # type: ignore[misc, assignment]
        assert make_engine(model).description["kernels"] == "triton (builtin)"
        speculative = assert_lossless(
            model,
            requests,
            lambda outputs: NoisyDrafter(outputs, p=0.8, max_width=5, vocab_size=TOY_VOCAB),
            dtype="float32",
        )
        assert speculative.tokens() == expected
        assert accepted(speculative)[0] > 0


def names():
    return [name for name in globals() if name.startswith("interpret_")]


if __name__ == "__main__":
    torch.set_num_threads(1)
    mend_the_interpreter()
    print(json.dumps({name: outcome(globals()[name]) for name in names()}))
