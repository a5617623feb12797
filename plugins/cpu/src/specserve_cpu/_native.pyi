"""The kernels, in C++ (`native/`). Tensors go in and out by DLPack, on CPU; long calls let other Python threads run.

Letters: T rows, V vocabulary. What is written goes into `out`, which the caller makes. A tensor of the wrong dtype or
shape, and a number out of range, is a ValueError that says what was got and what is allowed.
"""

from array import array
from collections.abc import Sequence
from typing import type_check_only

from torch import Tensor

def instruction_sets() -> list[str]:
    """Those of this build that the processor runs, the fastest first; the last is always `portable`."""

class Machine:
    """An instruction set and its threads, which everything of one engine shares."""

    def __init__(self, instruction_set: str, threads: int) -> None: ...
    @property
    def instruction_set(self) -> str: ...
    @property
    def threads(self) -> int: ...

class Plan:
    """Which keys each row of a batch sees."""

    def __init__(self, block_size: int, rows_per_tile: int) -> None: ...
    def add(self, start: int, length: int, known: int, blocks: Sequence[int], parents: Sequence[int]) -> None:
        """A request's next rows: `length` of them from token `start` on, the first `known` committed. parents: of its
        guesses, -1 for the root; empty where each follows the one before."""

    @property
    def num_rows(self) -> int: ...

@type_check_only
class Kind:
    """What there is once per dtype: `float32` and `bfloat16` are modules of these names."""

    class PackedLinear:
        """weight: [out, in], in bfloat16 with an even number of inputs; packed once."""

        def __init__(self, machine: Machine, weight: Tensor, bias: Tensor | None) -> None: ...
        def run(self, x: Tensor, out: Tensor) -> None:
            """x: [T, in] -> out: [T, out]."""

    class LowRank:
        """What an adapter adds to one projection: of each part x through `down`, then `up`, to the outputs from the
        number on. At most 256 outputs of `down`."""

        def __init__(self, parts: Sequence[tuple[Kind.PackedLinear, Kind.PackedLinear, int]]) -> None: ...

    class Adapter:
        """Of every layer the parts of qkv, o, gate_up and down; layers beyond the last are as the model is."""

        def __init__(self, layers: Sequence[tuple[Kind.LowRank | None, ...]]) -> None: ...

    @staticmethod
    def add_low_rank(
        machine: Machine, x: Tensor, out: Tensor, segments: Sequence[tuple[int, int, Kind.LowRank]], /
    ) -> None:
        """x: [T, in]; to rows [begin, end) of out: [T, out] what each segment adds."""

    @staticmethod
    def rms_norm(machine: Machine, x: Tensor, weight: Tensor, eps: float, out: Tensor, /) -> None:
        """x, out: [T, heads, n]; weight: [n]."""

    @staticmethod
    def rotary(machine: Machine, x: Tensor, cos: Tensor, sin: Tensor, /) -> None:
        """x: [T, heads, head_dim], turned in place; cos, sin: [T, 1, rotary_dim] float32."""

    @staticmethod
    def silu_and_multiply(machine: Machine, gate_up: Tensor, out: Tensor, /) -> None:
        """gate_up: [T, 2n] -> out: [T, n]."""

    class PagedAttention:
        """cache: [layers, 2, slots, kv_heads, head_dim], read and written in place. layout: by_slot, or panels, which
        mixes the numbers of sixteen neighbouring slots."""

        def __init__(
            self, machine: Machine, cache: Tensor, layout: str, query_heads: int, scale: float, key_limit: float
        ) -> None: ...
        def run(
            self,
            layer: int,
            q: Tensor,
            k: Tensor,
            v: Tensor,
            slots: Tensor,
            plan: Plan,
            window: int,
            out: Tensor,
            /,
        ) -> None:
            """Writes k, v: [T, kv_heads, head_dim] to slots: [T] int64; then q, out: [T, heads, head_dim]. window: how
            many keys a query sees, 0 for all."""

        def move(self, source: Sequence[int], target: Sequence[int]) -> None:
            """Tokens to other slots in every layer, as if all were read before any is written."""

        @property
        def rows_per_tile(self) -> int: ...

    class LayerParts:
        """The weights of a layer. The head norms are None where the family has none."""

        def __init__(
            self,
            *,
            input_norm: Tensor,
            qkv: Kind.PackedLinear,
            q_norm: Tensor | None,
            k_norm: Tensor | None,
            o: Kind.PackedLinear,
            post_norm: Tensor,
            gate_up: Kind.PackedLinear,
            down: Kind.PackedLinear,
            window: int,
        ) -> None: ...

    class FusedStack:
        """The decoder's layers; cos, sin: [positions, 1, rotary_dim] float32; heads: of queries, of keys, numbers of
        one. Without attention of its own it has `enter` and `leave`, not `forward`. adapters: of rows [begin, end)."""

        def __init__(
            self,
            *,
            machine: Machine,
            attention: Kind.PagedAttention | None,
            heads: tuple[int, int, int],
            layers: Sequence[Kind.LayerParts],
            final_norm: Tensor,
            head: Kind.PackedLinear,
            cos: Tensor,
            sin: Tensor,
            eps: float,
            scale: float,
        ) -> None: ...
        def forward(
            self,
            x: Tensor,
            positions: Tensor,
            slots: Tensor,
            plan: Plan,
            begin: int,
            end: int,
            adapters: Sequence[tuple[int, int, Kind.Adapter]],
            /,
        ) -> None:
            """x: [T, hidden], the input of layer `begin`, becomes that of layer `end`; positions, slots: [T] int64."""

        def enter(
            self,
            layer: int,
            x: Tensor,
            positions: Tensor,
            adapters: Sequence[tuple[int, int, Kind.Adapter]],
            qkv: Tensor,
            /,
        ) -> None:
            """qkv: [T, (heads + 2 kv_heads) * head_dim], of x and turned."""

        def leave(
            self, layer: int, x: Tensor, attended: Tensor, adapters: Sequence[tuple[int, int, Kind.Adapter]], /
        ) -> None:
            """x, the input of the layer, becomes its output; attended: [T, heads * head_dim]."""

        def logits(self, x: Tensor, rows: Tensor | None, out: Tensor) -> None:
            """out: [len(rows), V] float32, of these rows of x or of all."""

float32: type[Kind]
bfloat16: type[Kind]

class Targets:
    """The rows whose target tokens are wanted. `begin` one, then say what changes its logits: ids are array("q") of
    distinct tokens, counts and values array("f"), as in `specserve.protocols.LogitEdits`, or other buffers of these
    types: their numbers are copied."""

    def __init__(self) -> None: ...
    def begin(
        self, row: int, seed: int, index: int, temperature: float, top_k: int, top_p: float, min_p: float, /
    ) -> None:
        """row: in the logits; temperature 0 is greedy."""

    def use(self, logits: Tensor, /) -> None:
        """[V] float32, in place of the row's; copied."""

    def penalize(
        self, ids: array[int], counts: array[float], repetition: float, presence: float, frequency: float, /
    ) -> None: ...
    def shift(self, ids: array[int], values: array[float], /) -> None: ...
    def keep_only(self, ids: array[int], /) -> None: ...
    def forbid(self, ids: array[int], /) -> None: ...

class Sampler:
    """Decides rows of logits: [n, V] float32. A NaN counts as -inf."""

    def __init__(self, machine: Machine) -> None: ...
    def argmax_tokens(self, logits: Tensor) -> list[int]: ...
    def target_tokens(self, logits: Tensor, targets: Targets) -> list[int]: ...
    def token_logprobs(
        self, logits: Tensor, tokens: Sequence[int], counts: Sequence[int]
    ) -> list[tuple[float, tuple[int, ...], tuple[float, ...]]]:
        """Per row: the token's log-probability, the ids of the counts[i] best, and theirs."""

    def noise(self, seed: int, index: int, out: Tensor) -> None:
        """The Gumbel noise of tokens 0, 1, ...; out: [V] float32."""
