"""A head's tensors by canonical name: which there must be, of which shape and type, and where a file has them.

Everything is checked from the headers when the checkpoint is opened; `take` reads data. A tensor that is missing, and
one that is not expected, are errors: either shows only as low acceptance where it is let pass.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from specserve.api import ModelError
from specserve.api.models import FLOATS, dense, expect
from specserve.models.arrange import arrange
from specserve.models.checkpoint import Checkpoint
from specserve.models.families import family_named
from specserve.models.tensor_names import CHOICE_BIAS, expert_maps, mlp_maps
from specserve_eagle.checkpoints.head_config import decoder_config
from specserve_eagle.checkpoints.layout import MASK_HIDDEN, QWEN, TEXT, layout_of, target_prefix
from specserve_eagle.checkpoints.stored import open_stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from specserve.api.models import StoredAs, WeightSource
    from specserve_eagle.checkpoints.head_config import HeadConfig

BUFFERS = ("rotary_emb.inv_freq",)
"""What old exporters write beside the weights; it holds nothing new."""
MLP = "mlp."
MAP_TYPES = {"d2t": ("I64", "I32"), "t2d": ("BOOL", "U8")}
TARGET_TENSOR = re.compile(r"model\.(?:embed_tokens|norm)\.weight|lm_head\.weight|model\.layers\.(\d+)\..+")


class Expected(NamedTuple):
    """What a file may hold under one canonical name."""

    shape: tuple[int, ...]
    required: bool = True
    ones_before: bool = False
    """In a file the shape may have ones before it."""

    def as_stored(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape to expect of a tensor that a file has in this one."""
        more = len(shape) - len(self.shape)
        return (1,) * more + self.shape if self.ones_before else self.shape


class HeadCheckpoint:
    """The tensors of one head, by canonical name; see `specserve_eagle.checkpoints.layout`.

    `candidates`: the names that a tensor may have in a file; `kind`: of the head, for errors; `is_others`: of names
    that the file holds beside the head's; `stored_as`: see `specserve.api.models.ModelFamily.stored_as`.
    """

    def __init__(
        self,
        source: WeightSource,
        expected: Mapping[str, Expected],
        candidates: Callable[[str], tuple[str, ...]],
        kind: str,
        is_others: Callable[[str], bool] = lambda _: False,
        stored_as: Mapping[str, StoredAs] = MappingProxyType({}),
    ) -> None:
        self.path, self._file = source.path, Checkpoint(source)
        arrange(self._file, stored_as)
        self._found: dict[str, str] = {}
        for canonical, wanted in expected.items():
            self._find(canonical, wanted, candidates(canonical))
        self._refuse_superfluous(kind, is_others)

    @property
    def canonical_names(self) -> frozenset[str]:
        """What `take` can read."""
        return frozenset(self._found)

    def has(self, canonical: str) -> bool:
        """Whether the head brings that tensor itself; where it lacks embed_tokens or lm_head, the target's is meant."""
        return canonical in self._found

    def take(self, canonical: str) -> Tensor:
        """The tensor, read from disk; of a quantised one, what it stands for."""
        return dense(self._file.take(self._found[canonical]))

    def _find(self, canonical: str, expected: Expected, candidates: Sequence[str]) -> None:
        for name in candidates:
            if name in self._file.names:
                found = self._file.find(name)
                dtypes = (found.dtype,) if found.quantised else MAP_TYPES.get(canonical, FLOATS)
                expect(found, name, expected.as_stored(found.shape), dtypes, "config.json")
                self._found[canonical] = name
                return
        if expected.required:
            self._file.find(candidates[0])  # raises the error for a missing tensor

    def _refuse_superfluous(self, kind: str, is_others: Callable[[str], bool]) -> None:
        known = set(self._found.values())
        extra = {name for name in self._file.names - known if not name.endswith(BUFFERS) and not is_others(name)}
        if extra:
            first = min(extra)
            raise ModelError(
                f"{self._file.find(first).file}: tensor {first} is not part of the {kind} that config.json "
                f"describes ({len(extra)} such tensors). What is left out costs acceptance: correct config.json, or "
                "convert the head to a supported format."
            )


def open_head(path: Path, config: HeadConfig) -> HeadCheckpoint:
    """The head's checkpoint in directory `path`, checked from its headers. Raises ModelError."""
    source = open_stored(path, config.quantization)
    layout = layout_of(frozenset(source.tensors), config.kind)
    assert layout is not None, "read_head_config found the layout"
    prefix = target_prefix(frozenset(source.tensors)) if config.kind == "mtp" else None
    return HeadCheckpoint(
        source,
        expected_tensors(config),
        layout.candidates,
        f"{config.kind} head",
        lambda name: prefix is not None and _is_targets(name, prefix, config),
        _experts_stored_as(config, layout.first_layer),
    )


def _experts_stored_as(config: HeadConfig, layer: str) -> dict[str, StoredAs]:
    """What the family's checkpoints keep otherwise in a layer with experts. layer: how names of the head's begin."""
    if config.experts is None:
        return {}
    numbers, first = decoder_config(config), "model.layers.0."
    stored_as = family_named(config.family).stored_as(numbers)
    return {
        layer + ours.removeprefix(first): stored._replace(name=layer + stored.name.removeprefix(first))
        for ours, stored in stored_as.items()
    }


def _is_targets(name: str, prefix: str, config: HeadConfig) -> bool:
    """A tensor of the target, in whose checkpoint the MTP head is; prefix: of its text model. Where that is a part of
    the target, the other parts' names are not known."""
    if prefix != TEXT:
        return not name.startswith(QWEN)
    match = TARGET_TENSOR.fullmatch(name)
    return match is not None and (match[1] is None or int(match[1]) < config.hidden_layers[0])


def expected_tensors(config: HeadConfig) -> dict[str, Expected]:
    """Every canonical name with its shape."""
    H, V, D, T = config.hidden_size, config.vocab_size, config.draft_vocab_size, config.target_hidden_size
    eagle3, reduced = config.kind == "eagle3", D < V
    tensors = {
        "fc": Expected((H, len(config.hidden_layers) * T if eagle3 else H + T)),
        "embed_tokens": Expected((V, H), required=False),
        "lm_head": Expected((D, H), required=reduced),
    }
    match config.target_norms:
        case "each":
            tensors |= {f"fc_norm.{i}": Expected((T,)) for i in range(len(config.hidden_layers))}
        case "all":
            tensors["input_norm"] = Expected((len(config.hidden_layers) * T,))
    if config.masks is not None:
        tensors[MASK_HIDDEN] = Expected((len(config.hidden_layers) * T,), ones_before=True)
    if config.fc_bias:
        tensors["fc.bias"] = Expected((H,))
    if config.kind == "mtp":
        tensors |= dict.fromkeys(("enorm", "hnorm"), Expected((H,)))
    if config.kind != "eagle" and config.reads == "normed":
        tensors["norm"] = Expected((H,))
    if eagle3:
        tensors |= {"d2t": Expected((D,), required=reduced), "t2d": Expected((V,), required=False)}
    for layer in range(config.num_layers):
        tensors |= {f"layers.{layer}.{name}": expected for name, expected in _layer(config, layer).items()}
    return tensors


def _layer(config: HeadConfig, layer: int) -> dict[str, Expected]:
    H = config.hidden_size
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    with_gates = 2 * q_size if config.attention_gate else q_size
    inputs = 2 * H if config.kind == "eagle3" and layer == 0 else H
    linears = {
        "q_proj": (with_gates, inputs, config.qkv_bias),
        "k_proj": (kv_size, inputs, config.qkv_bias),
        "v_proj": (kv_size, inputs, config.qkv_bias),
        "o_proj": (H, q_size, config.o_bias),
    }
    if config.latent is not None:
        linears = {name: (*shape, False) for name, shape in config.latent.maps(H, config.num_heads).items()}
    linears |= _mlp(config)
    norms = {"post_attention_norm": H}
    if config.kind != "eagle" or layer > 0:
        norms["input_norm"] = H
    if inputs != H:
        norms["hidden_norm"] = H
    if config.latent is not None:
        norms |= config.latent.norms()
    if config.qk_norm:
        norms |= {"q_norm": config.head_dim, "k_norm": config.head_dim}
    tensors = {name: Expected((size,)) for name, size in norms.items()}
    if config.experts is not None and config.experts.choice_bias:
        tensors[CHOICE_BIAS.removeprefix(MLP)] = Expected((config.experts.count,))
    tensors |= {name: Expected((rows, columns)) for name, (rows, columns, _) in linears.items()}
    return tensors | {f"{name}.bias": Expected((rows,)) for name, (rows, _, biased) in linears.items() if biased}


def _mlp(config: HeadConfig) -> dict[str, tuple[int, int, bool]]:
    if config.experts is None:
        maps = mlp_maps("mlp", config.hidden_size, config.intermediate_size, config.mlp_bias)
    else:
        maps = expert_maps(decoder_config(config))
    return {name.removeprefix(MLP): shape for name, shape in maps.items()}
