"""The kernels, in C++ (`native/`). CPU tensors are passed by DLPack, and calls release the GIL.

Letters: T rows, V vocabulary. Results go into `out`, which the caller allocates. A wrong dtype or shape and a number
out of range raise ValueError, which says what was got and what is allowed.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import TypeAlias, overload, type_check_only

from torch import Tensor

Routing = tuple[int, int, str, bool, bool, float, float]
"""How experts are chosen: those of a layer, those of a row, what scores are, whether the weights of the chosen are
divided by their sum, and whether they are rounded to the model's dtype; of sigmoids, what is added to the sum, and what
weights are multiplied by."""

def instruction_sets() -> list[str]:
    """Those of this build that the processor supports, the fastest first; the last is always `portable`."""

class Machine:
    """The kernels of an instruction set and a thread pool, which all objects of one engine share."""

    def __init__(self, instruction_set: str, threads: int) -> None: ...
    @property
    def instruction_set(self) -> str: ...
    @property
    def threads(self) -> int: ...

class CodedPart:
    """Rows of a weight of few bits: integers [outputs, in] int8, times the scales of groups of inputs, plus their
    offsets."""

    def __init__(
        self,
        integers: Tensor,
        group_size: int,
        bits: int,
        levels: Sequence[int],
        scale_units: Tensor,
        scale_steps: Tensor | None,
        offset_units: Tensor | None,
        offset_steps: Tensor | None,
    ) -> None:
        """group_size: 16, or a multiple of 32; bits: 4, 5, 6 or 8; levels: the integers that there are, ascending, or
        the least and the greatest of consecutive ones. Units are [outputs, groups / n] float32, each for n groups, and
        steps [outputs, groups], int8 or uint8; without steps there is a unit for each group."""

class DeltaWorkspace:
    """Memory of calls of `DtypeModule.GatedDeltaNet`, one at a time."""

    def __init__(self, machine: Machine) -> None: ...

class AttentionPlan:
    """Which keys each row of a batch sees."""

    def __init__(self, block_size: int, rows_per_tile: int) -> None: ...
    def add(
        self,
        start: int,
        length: int,
        num_committed: int,
        block_ids: Sequence[int],
        parents: Sequence[int],
        first_node: int = 0,
    ) -> None:
        """A request's rows: `length` tokens from position `start`, the first `num_committed` of them committed, the
        others draft tokens. parents: of the draft tokens, -1 for the root; empty for a chain. Draft tokens before
        `first_node` are in the cache and are no rows."""

    def add_together(self, start: int, length: int, block_ids: Sequence[int], one_by_one: bool = ...) -> None:
        """A request's rows: `length` tokens from position `start`, each of which sees all of them."""

    def pad(self, rows: int) -> None:
        """Rows behind the others that belong to no request and attend to nothing; their slots are -1. What comes out
        for them is undefined."""

    @property
    def num_rows(self) -> int: ...

ScoreRules: TypeAlias = tuple[int, float, Tensor | None]
"""Of a layer: how many keys a query sees, 0 for all; the cap of its scores, 0 for none; [heads] float32, the sinks."""

@type_check_only
class DtypeModule:
    """What exists once per dtype: `float32` and `bfloat16` are modules with these members."""

    class PackedLinear:
        """weight: [out, in], in bfloat16 with an even number of inputs. Packed once, into panels."""

        @overload
        def __init__(self, machine: Machine, weight: Tensor, bias: Tensor | None) -> None: ...
        @overload
        def __init__(
            self, machine: Machine, integers: Tensor, scales: Tensor, group_size: int, inputs: str, bias: Tensor | None
        ) -> None:
            """Weights of 8 bits: integers [out, in] int8 times scales [out, groups of `group_size` inputs] float32.
            inputs: auto, or int8 to quantise them, too, with a scale for each row and group; groups are then multiples
            of 4 inputs, unless there is one, and have at most 131,072."""

        @overload
        def __init__(self, machine: Machine, parts: Iterable[CodedPart], inputs: str, bias: Tensor | None) -> None:
            """Weights of few bits, of parts below each other, of which all but the last have a multiple of 16 outputs.
            A part is packed before the next one is asked for.
            inputs: int8 to quantise them with a scale for each row and 32 of them; auto to multiply them in float32."""

        @property
        def out_features(self) -> int: ...
        def forward(self, x: Tensor, out: Tensor) -> None:
            """x: [T, in] -> out: [T, out]."""

        def rows(self, outputs: Tensor, out: Tensor) -> None:
            """outputs: [T] int64 -> out: [T, in], the weights of these outputs. Of integers alone."""

    @staticmethod
    def quantize(machine: Machine, weight: Tensor, group_size: int, integers: Tensor, scales: Tensor) -> None:
        """weight: [out, in] -> integers: [out, in] int8 in [-127, 127], scales: [out, groups] float32. Symmetric, to
        the nearest. ValueError where a weight is not finite."""

    class LowRankParts:
        """The low-rank parts of one projection: (down, up, first output) adds up(down(x)) to the outputs from the first
        on. The rank is at most 256."""

        def __init__(self, parts: Sequence[tuple[DtypeModule.PackedLinear, DtypeModule.PackedLinear, int]]) -> None: ...

    class PackedAdapter:
        """Of each layer the parts of qkv, o, gate_up, down, the router and attention's gate, and of its experts those
        of gate_up and down; later layers and experts have none."""

        def __init__(self, layers: Sequence[tuple[object, ...]]) -> None: ...

    @staticmethod
    def add_low_rank(
        machine: Machine, x: Tensor, out: Tensor, segments: Sequence[tuple[int, int, DtypeModule.LowRankParts]], /
    ) -> None:
        """x: [T, in]. Adds each segment's parts to rows [begin, end) of out: [T, out]."""

    @staticmethod
    def rms_norm(machine: Machine, x: Tensor, weight: Tensor, eps: float, out: Tensor, /) -> None:
        """x, out: [T, heads, n]; weight: [n]."""

    @staticmethod
    def apply_rope(machine: Machine, x: Tensor, cos: Tensor, sin: Tensor, /) -> None:
        """x: [T, heads, head_dim], in place; cos, sin: [T, 1, rotary_dim] float32."""

    @staticmethod
    def silu_and_multiply(machine: Machine, gate_up: Tensor, out: Tensor, /) -> None:
        """gate_up: [T, 2n] -> out: [T, n]."""

    @staticmethod
    def gelu_and_multiply(machine: Machine, gate_up: Tensor, out: Tensor, /) -> None:
        """The same with GELU by its tanh approximation."""

    @staticmethod
    def clamped_swiglu(machine: Machine, gate_up: Tensor, gain: float, limit: float, out: Tensor, /) -> None:
        """gate_up: [T, 2n] -> out: [T, n]: see `specserve.api.models.SwigluClamp`."""

    @staticmethod
    def gate(machine: Machine, x: Tensor, gates: Tensor, out: Tensor, /) -> None:
        """x: [T, n]; gates: [T, m], each of n / m neighbours in x -> out: [T, n], x times the gates' sigmoids."""

    @staticmethod
    def choose_experts(
        machine: Machine,
        logits: Tensor,
        routing: Routing,
        choice_bias: Tensor | None,
        experts: Tensor,
        weights: Tensor,
    ) -> None:
        """logits: [T, experts]; choice_bias: [experts] float32, of sigmoids -> experts: [T, k] int64, weights: [T, k]
        float32."""

    class PagedAttention:
        """cache: [layers, 2, slots, kv_heads, head_dim], read and written in place. layout: by_slot, or panels, which
        interleaves sixteen neighbouring slots; or by_slot-int8 or panels-int8, where the cache is int8 and a head has
        four elements more, the bytes of its float32 scale. rules: of every layer of the cache. Keys of positions before
        `min_key` are hidden from every query."""

        def __init__(
            self,
            machine: Machine,
            cache: Tensor,
            layout: str,
            num_heads: int,
            scale: float,
            key_limit: float,
            rules: Sequence[ScoreRules],
            min_key: int = 0,
        ) -> None: ...
        def forward(
            self,
            layer: int,
            q: Tensor,
            k: Tensor,
            v: Tensor,
            slots: Tensor,
            plan: AttentionPlan,
            out: Tensor,
            /,
        ) -> None:
            """Stores k, v: [T, kv_heads, head_dim] in slots: [T] int64, then attends. q, out: [T, heads, head_dim]."""

        def move_slots(self, source: Sequence[int], target: Sequence[int]) -> None:
            """Moves tokens to other slots, in every layer, as if all were read before any is written."""

        @property
        def rows_per_tile(self) -> int: ...

    class ShortConv:
        """A gated short convolution. weight: [taps, channels] float32, the last for the token itself; bias: [channels]
        float32."""

        def __init__(self, machine: Machine, weight: Tensor, bias: Tensor | None) -> None: ...
        def mix(
            self, rows: Tensor, kept: Tensor, slots: Tensor, before: Tensor, exists: Tensor, out: Tensor, /
        ) -> None:
            """rows: [T, 3 channels], B, C and x; kept: [slots, channels], in which B * x of the rows is written; slots:
            [T] int64; before: [T, taps - 1] int64, slots of the tokens before each row, the nearest first, and exists:
            bool, whether there are such; out: [T, channels]. The tokens before a row that are among the rows come
            before it."""

    class LayerWeights:
        """The weights of a layer. Norms that it does not have are None; those in float32, beside another dtype,
        multiply before the rounding. q_norm and k_norm: [head_dim], or of all heads. With an auxiliary norm, qkv has
        twice the inputs: the normed auxiliary input, then the normed input. cos, sin: [positions, 1, rotary_dim]
        float32, None where nothing is rotated. gate: from qkv's inputs to gates of attention's heads; or gates_in_qkv,
        where qkv gives gates of numbers: of each head the query, then its gates. In place of attention, between
        qkv and o: conv, or delta. kept: [slots, channels], what the cache has of a convolution's tokens; states,
        trails and updates: see `GatedDeltaNet.mix`. Only `DecoderStack.forward` reads these three."""

        def __init__(
            self,
            *,
            input_norm: Tensor | None,
            aux_norm: Tensor | None,
            qkv: DtypeModule.PackedLinear,
            q_norm: Tensor | None,
            k_norm: Tensor | None,
            gate: DtypeModule.PackedLinear | None,
            gates_in_qkv: bool,
            o: DtypeModule.PackedLinear,
            attention_output_norm: Tensor | None,
            mlp_norm: Tensor | None,
            gate_up: DtypeModule.PackedLinear | None,
            down: DtypeModule.PackedLinear | None,
            router: DtypeModule.PackedLinear | None,
            experts: Sequence[tuple[DtypeModule.PackedLinear, DtypeModule.PackedLinear]],
            choice_bias: Tensor | None,
            mlp_output_norm: Tensor | None,
            cos: Tensor | None,
            sin: Tensor | None,
            conv: DtypeModule.ShortConv | None,
            kept: Tensor | None,
            delta: DtypeModule.GatedDeltaNet | None,
            states: Tensor | None,
            trails: Tensor | None,
            updates: Tensor | None,
        ) -> None: ...

    class DecoderStack:
        """The decoder's layers. heads: query heads, KV heads, head_dim; positions: how many have angles; activation:
        silu, gelu_tanh or clamped_swiglu, and the latter's gain and limit; residual multiplies what attention and the
        MLP add. Without attention, call `pre_attention` and `post_attention` instead of `forward`. adapters: of rows
        [begin, end)."""

        def __init__(
            self,
            *,
            machine: Machine,
            attention: DtypeModule.PagedAttention | None,
            heads: tuple[int, int, int],
            layers: Sequence[DtypeModule.LayerWeights],
            final_norm: Tensor | None,
            lm_head: DtypeModule.PackedLinear,
            positions: int,
            eps: float,
            scale: float,
            activation: tuple[str, float, float],
            residual: float,
            routing: Routing | None,
        ) -> None: ...
        def forward(
            self,
            x: Tensor,
            positions: Tensor,
            slots: Tensor,
            plan: AttentionPlan,
            adapters: Sequence[tuple[int, int, DtypeModule.PackedAdapter]],
            aux: Tensor | None,
            taps: Sequence[tuple[int, Tensor, int, int]],
            runs: array[int],
            /,
        ) -> None:
            """x: [T, hidden], the input of the first layer, becomes the output of the last; positions, slots: [T]
            int64; aux: [T, hidden]. taps: layers whose input, and the number of layers for the last output, is copied
            to [T, hidden] of a tensor [any, any] from this row and column on. runs: as `GatedDeltaNet.mix` reads them,
            for all layers that have one."""

        def pre_attention(
            self,
            layer: int,
            x: Tensor,
            positions: Tensor,
            adapters: Sequence[tuple[int, int, DtypeModule.PackedAdapter]],
            aux: Tensor | None,
            qkv: Tensor,
            gates: Tensor | None,
        ) -> None:
            """qkv: [T, (heads + 2 kv_heads) * head_dim], with RoPE applied; of a layer without attention, the
            rows that its mixer reads. gates: [T, heads], or [T, heads * head_dim], for `post_attention`; None where
            the layer has none."""

        def post_attention(
            self,
            layer: int,
            x: Tensor,
            attention_out: Tensor,
            gates: Tensor | None,
            adapters: Sequence[tuple[int, int, DtypeModule.PackedAdapter]],
        ) -> None:
            """x, the input of the layer, becomes its output; attention_out: [T, heads * head_dim], or what the mixer
            gives."""

        def logits(self, x: Tensor, rows: Tensor | None, out: Tensor) -> None:
            """out: [len(rows), V] float32; rows: of x, None for all."""

    class DraftHead:
        """A draft model over the layers of a stack, which is made with attention. Without `fc`, hidden states are the
        layers' input and the embedding is their auxiliary input; target_fc or target_norm is applied to hidden states
        of the target first. Letters: R rows, n scored rows, H hidden size."""

        def __init__(
            self,
            *,
            machine: Machine,
            stack: DtypeModule.DecoderStack,
            embedding: Tensor,
            target_fc: DtypeModule.PackedLinear | None,
            target_norm: Tensor | None,
            target_size: int,
            target_eps: float,
            fc: DtypeModule.PackedLinear | None,
            reads_hidden: bool,
            embedding_first: bool,
            enorm: Tensor | None,
            hnorm: Tensor | None,
            feeds_back_norm: bool,
            draft_ids: Tensor | None,
        ) -> None:
            """draft_ids: the target's ids of the stack's tokens, [D] int64; None for the same."""
        def step(
            self,
            ids: Tensor,
            hidden: Tensor | None,
            from_target: bool,
            positions: Tensor,
            slots: Tensor,
            plan: AttentionPlan,
            scored: Tensor,
            scored_plan: AttentionPlan,
            sampler: Sampler,
            targets: TargetRows,
            count: int,
            own: Tensor | None,
        ) -> tuple[list[int], list[float]]:
            """ids, positions, slots: [R] int64; hidden: [R, target_size] from the target, else [R, H]; scored: [n]
            int64, ascending. plan: of all rows, not read if there is one layer. own: [n, H] becomes the scored rows'
            own hidden states. Tokens and probabilities as `Sampler.draft_tokens` returns them, of the target rows,
            which number the scored rows."""
        def chains(
            self,
            ids: Tensor,
            hidden: Tensor | None,
            from_target: bool,
            positions: Tensor,
            slots: Tensor,
            plan: AttentionPlan,
            scored: Tensor,
            scored_plan: AttentionPlan,
            sampler: Sampler,
            targets: TargetRows,
            steps: list[int],
            own: Tensor | None,
        ) -> tuple[tuple[list[int], list[float]], float, int]:
            """`step`, and then passes in which each scored row's best token is its next input, until its chain has
            `steps` tokens. Each scored row is its request's last in `scored_plan`, whose blocks have room for the
            chain; each has a target row, in this order and without edits. own: each row's last own hidden state.
            Returns (tokens, probabilities), max(steps) of each scored row, probability 0 behind a chain's end; and
            the seconds and the number of the passes after the first."""

    class BlockHead:
        """A block head over the layers of a stack: see `specserve.api.models.BlockHead`."""

        def __init__(
            self,
            *,
            machine: Machine,
            stack: DtypeModule.DecoderStack,
            embedding: Tensor,
            fc: DtypeModule.PackedLinear,
            hidden_norm: Tensor,
            keys_values: DtypeModule.PackedLinear,
            markov_entry: Tensor | None,
            markov_out: DtypeModule.PackedLinear | None,
            markov_gate: DtypeModule.PackedLinear | None,
            markov_joint: DtypeModule.PackedLinear | None,
            confidence: DtypeModule.PackedLinear | None,
            first_proposing: int,
            draft_ids: Tensor | None,
        ) -> None:
            """draft_ids: as those of a `DraftHead`."""
        def write(self, hidden: Tensor, positions: Tensor, slots: Tensor) -> None:
            """hidden: [R, W], of committed tokens; positions, slots: [R] int64. Their keys and values, of all layers,
            go into the cache."""

        def draft(
            self,
            hidden: Tensor,
            positions: Tensor,
            slots: Tensor,
            ids: Tensor,
            block_positions: Tensor,
            block_slots: Tensor,
            plan: AttentionPlan,
            firsts: Sequence[int],
            wanted: Sequence[int],
            sampler: Sampler,
            targets: TargetRows,
        ) -> tuple[list[int], list[float]]:
            """`write`, and then a pass over blocks: ids, block_positions, block_slots: [B] int64; firsts: each block's
            first row; wanted: its draft tokens, at least 1. A target row of each block, in this order and without
            edits. Returns (tokens, probabilities), max(wanted) of each block, probability 0 behind a chain's end."""

        def rows(
            self,
            hidden: Tensor,
            positions: Tensor,
            slots: Tensor,
            ids: Tensor,
            block_positions: Tensor,
            block_slots: Tensor,
            plan: AttentionPlan,
            firsts: Sequence[int],
            wanted: Sequence[int],
            logits: Tensor,
            states: Tensor | None,
        ) -> None:
            """As `draft`, as far as the rows that propose, n in all: logits [n, D] float32, without what a Markov head
            adds, and states [n, H] behind the final norm are written."""

    class GatedDeltaNet:
        """numbers: key heads G, value heads V, their sizes dk and dv, taps L. C = 2 G dk + V dv. All are float32."""

        def __init__(
            self,
            *,
            machine: Machine,
            workspace: DeltaWorkspace,
            numbers: tuple[int, int, int, int, int],
            taps: Tensor,
            dt_bias: Tensor,
            rate: Tensor,
            norm: Tensor,
            eps: float,
        ) -> None:
            """taps: [L, C], the first for the token itself; dt_bias, rate: [V]; norm: [dv]."""

        def mix(
            self, rows: Tensor, states: Tensor, trails: Tensor, updates: Tensor, runs: array[int], out: Tensor
        ) -> None:
            """rows: [T, C + 2 V + V dv] -> out: [T, V dv]; states: [slots, V dk dv + (L - 1) C] float32, trails:
            [slots, draft tokens, C + 2 V], updates: [slots, draft tokens, V dv] float32: see
            `specserve.api.LayerStates`. runs: array("q"), of each run source, target, position, first row, known; then
            the number of followed draft tokens, and these; that of draft tokens, and their parents; that of saved
            states, and (tokens, slot) of each."""

float32: type[DtypeModule]
bfloat16: type[DtypeModule]

class TargetRows:
    """The rows whose target tokens are to be chosen: `add_row`, then the edits of its logits. As in
    `specserve.api.LogitEdits`, ids are array("q") of distinct tokens, counts and values array("f"); other buffers
    of these types serve too. All are copied."""

    def __init__(self) -> None: ...
    def add_row(
        self, row: int, seed: int, index: int, temperature: float, top_k: int, top_p: float, min_p: float, /
    ) -> None:
        """row: of the logits; temperature 0 is greedy."""

    def replace_logits(self, logits: Tensor, /) -> None:
        """logits: [V] float32, used instead of the row; copied."""

    def penalize(
        self, ids: array[int], counts: array[float], repetition: float, presence: float, frequency: float, /
    ) -> None: ...
    def shift(self, ids: array[int], values: array[float], /) -> None: ...
    def keep_only(self, ids: array[int], /) -> None: ...
    def forbid(self, ids: array[int], /) -> None: ...
    def keep_bits(self, bits: array[int], /) -> None:
        """bits: array("I")."""

class Sampler:
    """logits: [n, V] float32; NaN counts as -inf."""

    def __init__(self, machine: Machine) -> None: ...
    def argmax_tokens(self, logits: Tensor) -> list[int]: ...
    def target_tokens(self, logits: Tensor, targets: TargetRows) -> list[int]:
        """-1 where the edits of a row left no token."""

    def draft_tokens(
        self, logits: Tensor, targets: TargetRows, ids: Tensor | None, count: int
    ) -> tuple[list[int], list[float]]:
        """Of each target row the `count` best tokens, best first, and their probabilities among the scores with noise;
        probability 0: there is none. ids: [V] int64, the target's id of each column; rows have no edits then."""

    def token_logprobs(
        self, logits: Tensor, tokens: Sequence[int], counts: Sequence[int]
    ) -> list[tuple[float, tuple[int, ...], tuple[float, ...]]]:
        """Of row i: the log-probability of tokens[i], and the ids and log-probabilities of its counts[i] best."""

    def gumbel_noise(self, seed: int, index: int, out: Tensor) -> None:
        """The Gumbel noise of tokens 0, 1, ...; out: [V] float32."""
