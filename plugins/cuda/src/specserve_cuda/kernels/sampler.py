"""The CUDA sampler: the target tokens of any number of rows in one upload, one or two launches, and one copy back.

Decides as `TorchSampler` does. Edits, temperature, top-k and the integers of the noise are the same bits; the noise's
logarithms and the sums of top-p may differ in their last bits. Imports Triton.
"""

from __future__ import annotations

import math
import struct
from array import array
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from specserve.api import DraftToken
from specserve.api.batch import copy_to_device
from specserve.api.sampling import (
    GREEDY_BELOW,
    NO_TOKEN,
    TorchSampler,
    checked_bits,
    checked_floats,
    checked_ids,
    each_processor,
    has_token,
    in_target_vocabulary,
    no_token_left,
    processed,
    row_key,
    signed,
)
from specserve_cuda.kernels.sampling import (
    FORBID,
    KEEP_BITS,
    KEEP_ONLY,
    OP_FIELDS,
    PENALIZE,
    ROW_FIELDS,
    SHIFT,
    edit_kernel,
    sample_kernel,
)
from specserve_cuda.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import DraftVocabulary, ScoredRow
    from specserve.api.sampling import EditingState

BLOCK = 2048
NO_EDIT = -1


def bits_of(number: float) -> int:
    """Of a float64, as an int64."""
    return int(struct.unpack("q", struct.pack("d", number))[0])


class RecordedEdits:
    """`specserve.api.LogitEdits` that writes down what is to be done to one row."""

    def __init__(self, numbers: array[int], vocab_size: int) -> None:
        self.numbers, self.vocab_size = numbers, vocab_size
        self.operations: list[tuple[int, ...]] = []

    def penalize(
        self, ids: array[int], counts: array[float], repetition: float, presence: float, frequency: float, /
    ) -> None:
        self.record(PENALIZE, ids, checked_floats(counts, ids), (repetition, presence, frequency))

    def shift(self, ids: array[int], values: array[float], /) -> None:
        self.record(SHIFT, ids, checked_floats(values, ids))

    def keep_only(self, ids: array[int], /) -> None:
        self.record(KEEP_ONLY, ids)

    def forbid(self, ids: array[int], /) -> None:
        self.record(FORBID, ids)

    def keep_bits(self, bits: array[int], /) -> None:
        words = checked_bits(bits, self.vocab_size)
        first = len(self.numbers)
        self.numbers.frombytes(words.tobytes() + bytes(4 * (len(words) % 2)))
        self.operations.append((KEEP_BITS, first, len(self.numbers) - first, *map(bits_of, (0.0, 0.0, 0.0)), first, 0))

    def record(
        self, kind: int, ids: array[int], values: Tensor | None = None, factors: tuple[float, ...] = (0.0, 0.0, 0.0)
    ) -> None:
        first = len(self.numbers)
        self.numbers.extend(checked_ids(ids, self.vocab_size).tolist())
        first_value = len(self.numbers)
        if values is not None:
            self.numbers.frombytes(array("d", values.tolist()).tobytes())
        self.operations.append((kind, first, len(ids), *map(bits_of, factors), first_value, 0))


class EditedRow(NamedTuple):
    """Its row of logits, its row of the edited ones, and its edits."""

    row: int
    target: int
    operations: list[tuple[int, ...]]


class SamplingPlan:
    """All that the kernels need of the host, as int64 numbers for one upload."""

    def __init__(self, logits: Tensor) -> None:
        self.logits, self.vocab_size = logits, logits.shape[1]
        self.rows = array("q")
        self.numbers = array("q")
        """Ids and values of edits."""
        self.edited: list[EditedRow] = []
        self.given: dict[int, Tensor] = {}
        """Rows of the edited logits that processors computed themselves."""

    @property
    def num_edited(self) -> int:
        return len(self.edited) + len(self.given)

    def add(self, scored: ScoredRow) -> None:
        """Raises `RequestFault` where a processor of the request does."""
        row, request, path, *_ = scored
        params = request.params
        edit = self.add_edits(scored) if scored.processors else NO_EDIT
        temperature = params.temperature if params.temperature >= GREEDY_BELOW else 0.0
        key = signed(row_key(request.seed, request.num_generated + len(path)))
        least = math.log(params.min_p) if params.min_p > 0 else -math.inf
        self.rows.extend((row, edit, key, bits_of(temperature), params.top_k, bits_of(params.top_p), bits_of(least), 0))

    def add_edits(self, scored: ScoredRow) -> int:
        """Which of the edited rows it becomes."""
        target = self.num_edited
        if all(state.has_edits for state in scored.processors):
            edits = RecordedEdits(self.numbers, self.vocab_size)
            each_processor(scored, lambda state: cast("EditingState", state).edit(edits, scored.path))
            self.edited.append(EditedRow(scored.row, target, edits.operations))
        else:
            self.given[target] = processed(self.logits[scored.row].clone(), scored)
        return target

    def upload(self) -> tuple[Tensor, Tensor, Tensor]:
        """The rows [n, ROW_FIELDS], the edited rows [n, 4], and the numbers of edits: parts of one tensor."""
        edits = array("q")
        for row, target, operations in self.edited:
            edits.extend((row, target, len(self.numbers), len(operations)))
            for operation in operations:
                self.numbers.extend(operation)
        host = torch.frombuffer(self.rows + edits + self.numbers, dtype=torch.int64)
        sizes = len(self.rows), len(edits), len(self.numbers)
        rows, edited, numbers = copy_to_device(host, self.logits.device).split_with_sizes(sizes)
        return rows, edited, numbers


class TritonSampler(TorchSampler):
    """`specserve.api.Sampler` on CUDA. A NaN logit of a sampled or edited row counts as -inf."""

    def __init__(self) -> None:
        self.edit = Launch(edit_kernel, {"BLOCK": BLOCK}, num_warps=8, enable_fp_fusion=False)
        self.choose, self.score = (
            Launch(sample_kernel, {"KEEPS_SCORES": keeps, "BLOCK": BLOCK}, num_warps=16, enable_fp_fusion=False)
            for keeps in (False, True)
        )

    def target_tokens(self, logits: Tensor, rows: Sequence[ScoredRow]) -> list[int]:
        if not rows:
            return []
        tokens: list[int] = self.decided(logits, rows, self.choose)[0].tolist()
        for i, token in enumerate(tokens if NO_TOKEN in tokens else ()):
            if token == NO_TOKEN:
                if has_token(logits[rows[i].row]):
                    raise no_token_left(rows[i].request)
                tokens[i] = 0
        return tokens

    def draft_tokens(
        self, logits: Tensor, rows: Sequence[ScoredRow], vocabulary: DraftVocabulary | None, count: int
    ) -> list[list[DraftToken]]:
        if not rows:
            return []
        full = logits if vocabulary is None else in_target_vocabulary(logits, vocabulary)
        best = self.decided(full, rows, self.score)[1].softmax(-1).topk(min(count, full.shape[1]))
        # float64 holds both exactly: one copy to the host instead of two
        found = torch.stack((best.indices.double(), best.values.double()), -1).tolist()
        return [[DraftToken(int(token), p) for token, p in row if p > 0] for row in found]

    def decided(self, logits: Tensor, rows: Sequence[ScoredRow], launch: Launch) -> tuple[Tensor, Tensor]:
        """The target tokens of the rows, and where they are kept their scores [rows, V]."""
        plan = SamplingPlan(logits)
        for row in rows:
            plan.add(row)
        fields, edits, numbers = plan.upload()
        edited = logits.new_empty((plan.num_edited, plan.vocab_size))
        for target, given in plan.given.items():
            edited[target] = given
        if plan.edited:
            kept = logits.new_empty(len(numbers))
            self.edit(len(plan.edited), 1, logits, numbers, edits, edited, kept, plan.vocab_size)
        tokens = torch.empty(len(rows), dtype=torch.int64, device=logits.device)
        scores = logits.new_empty((len(rows) if launch is self.score else 0, plan.vocab_size))
        source = edited if plan.num_edited else logits
        launch(len(rows), 1, logits, source, fields, tokens, scores, plan.vocab_size)
        return tokens, scores


assert ROW_FIELDS == OP_FIELDS == 8, "what `SamplingPlan` writes"
