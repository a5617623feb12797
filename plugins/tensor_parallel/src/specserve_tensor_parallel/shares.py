"""Which rows and columns of a model's weights each rank has: arithmetic on sizes.

Query heads, inner widths and the vocabulary are divided among the ranks in order. Where there are fewer key heads than
ranks, several ranks have the same one. Knows nothing about processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.api import ConfigError, TensorPart

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve.api.models import ModelConfig

BY_ROWS = ("gate_proj", "up_proj")
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": BY_ROWS}
EXPERTS = ".experts."
SHARED_EXPERT = ".shared_expert."
"""In the names of tensors and projections of experts. Routers and gates are whole on every rank."""
ENDS = ("embed_tokens", "lm_head")


def share(size: int, rank: int, ranks: int) -> slice:
    """The rank's part of `size` things in a row: the first ranks have one more where it does not divide evenly."""
    each, over = divmod(size, ranks)
    begin = rank * each + min(rank, over)
    return slice(begin, begin + each + (rank < over))


def check_divisible(config: ModelConfig, ranks: int) -> None:
    """Raises ConfigError where the model cannot be divided among so many ranks."""
    allowed = [n for n in range(2, config.num_heads + 1) if not problem(config, n)]
    if why := problem(config, ranks):
        can = f"this model allows {', '.join(map(str, allowed))}" if allowed else "this model allows none but 1"
        raise ConfigError(f"tensor_parallel.ranks: {why}; got {ranks}. Choose another number of ranks: {can}.")


def problem(config: ModelConfig, ranks: int) -> str:
    """Why so many ranks cannot share the model; empty where they can."""
    heads, keys = config.num_heads, config.num_kv_heads
    if any(config.mixers) and ranks > 1:
        return "each rank has some heads, and this model has layers without attention"
    if config.attention_gate is not None and ranks > 1:
        return "each rank has some heads, and this model's gates of heads are not divided"
    if config.is_varied and ranks > 1:
        return f"ranks share plain decoders, and that of family {config.family} (VariedDecoder) is none"
    if heads % ranks:
        return f"each rank has the same number of query heads, of which this model has {heads}"
    if keys % ranks and ranks % keys:
        return f"ranks have the same number of key heads, or share them evenly; this model has {keys}"
    if config.qk_norm and config.qk_norm_of == "all heads" and ranks > 1:
        return "each rank has some heads, and this model norms the queries of all heads together"
    widths = [config.intermediate_size]
    if config.experts is not None:
        widths += [config.experts.inner_size, config.experts.shared_size or config.experts.inner_size]
    inner = min(widths)
    if min(inner, config.vocab_size) < ranks:
        return f"each rank has a part of the inner width {inner} and of the vocabulary"
    return ""


class Cuts(NamedTuple):
    """What a rank has of the linear maps of a layer, or of an expert, by their names."""

    rows: Mapping[str, slice]
    columns: Mapping[str, slice]
    sizes: Mapping[str, int]
    """Outputs of the whole maps."""

    def of_inner(self, size: int, own: slice) -> Cuts:
        """With an MLP of another width."""
        return Cuts(
            {**self.rows, **dict.fromkeys(BY_ROWS, own)},
            {**self.columns, "down_proj": own},
            {**self.sizes, **dict.fromkeys(BY_ROWS, size)},
        )


class Shares:
    """What one rank has of a model that `check_divisible` accepts."""

    def __init__(self, config: ModelConfig, rank: int, ranks: int) -> None:
        self.rank, size = rank, config.head_dim
        self.queries = share(config.num_heads, rank, ranks)
        first = rank * config.num_kv_heads // ranks
        self.keys = slice(first, first + max(config.num_kv_heads // ranks, 1))
        self.inner = share(config.intermediate_size, rank, ranks)
        self.vocabulary = [share(config.vocab_size, each, ranks) for each in range(ranks)]
        """Of every rank."""
        of_heads = {"q_proj": self.queries, "k_proj": self.keys, "v_proj": self.keys}
        rows = {name: slice(heads.start * size, heads.stop * size) for name, heads in of_heads.items()}
        sizes = {"q_proj": config.num_heads * size, **dict.fromkeys(("k_proj", "v_proj"), config.num_kv_heads * size)}
        of_attention = Cuts(rows | dict.fromkeys(ENDS, self.vocabulary[rank]), {"o_proj": rows["q_proj"]}, sizes)
        self.plain = self.of_expert = self.of_shared = of_attention.of_inner(config.intermediate_size, self.inner)
        if config.experts is not None:
            width, of_shared = config.experts.inner_size, config.experts.shared_size
            self.of_expert = self.plain.of_inner(width, share(width, rank, ranks))
            if of_shared is not None:
                self.of_shared = self.plain.of_inner(of_shared, share(of_shared, rank, ranks))

    def cuts(self, name: str) -> Cuts:
        """Of a tensor or a projection."""
        return self.of_expert if EXPERTS in name else self.of_shared if SHARED_EXPERT in name else self.plain

    def tensor(self, name: str) -> TensorPart | None:
        """What this rank has of the checkpoint's tensor; None: nothing. The bias of a sum is the first rank's."""
        stem, _, kind = name.rpartition(".")
        if kind == "sinks":
            return TensorPart(self.queries)
        module, cuts = stem.rpartition(".")[2], self.cuts(stem)
        if module in cuts.rows:
            return TensorPart(cuts.rows[module])
        if module in cuts.columns:
            if kind == "bias":
                return None if self.rank else TensorPart()
            return TensorPart(columns=cuts.columns[module])
        return TensorPart()

    def outputs(self, projection: str, whole: slice) -> Iterator[tuple[slice, slice]]:
        """Of outputs `whole` of a fused projection, which are one of the checkpoint's maps, or several that follow each
        other: of each map, which of these outputs this rank has, and where they are among its own."""
        cuts, begin, first = self.cuts(projection), 0, 0
        for name in FUSED[projection.rpartition(".")[2]]:
            rows = cuts.rows[name]
            end, last = begin + cuts.sizes[name], first + rows.stop - rows.start
            if whole.start <= begin and end <= whole.stop:
                at = begin - whole.start
                yield slice(at + rows.start, at + rows.stop), slice(first, last)
            else:
                assert end <= whole.start or whole.stop <= begin, f"outputs {whole} are no maps of {projection}"
            begin, first = end, last

    def numbers(self, config: ModelConfig) -> ModelConfig:
        """The heads and widths of this rank."""
        own, shared = (cuts.columns["down_proj"] for cuts in (self.of_expert, self.of_shared))
        experts = config.experts
        if experts is not None:
            experts = msgspec.structs.replace(
                experts,
                inner_size=own.stop - own.start,
                shared_size=experts.shared_size and shared.stop - shared.start,
            )
        return msgspec.structs.replace(
            config,
            num_heads=self.queries.stop - self.queries.start,
            num_kv_heads=self.keys.stop - self.keys.start,
            intermediate_size=self.inner.stop - self.inner.start,
            experts=experts,
        )
