"""A model of a given shape whose random weights are made on the device: no file of 16 GB is written or read."""

from __future__ import annotations

import json
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

import torch

from specserve.models.read_config import read_config
from specserve.models.tensor_names import expected_shapes
from specserve.models.weight_format import ALL_ROWS, StoredTensor, WeightSource
from specserve_workbench.testing.toy_tokenizer import EOS_ID, write_tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

LLAMA_8B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "bos_token_id": None,
    "eos_token_id": EOS_ID,
}
STD = 0.02


class RandomWeights(WeightSource):
    """Those that the model in directory `path` needs, by its config.json."""

    def __init__(self, path: Path, *_: object) -> None:
        self.path = path
        shapes = expected_shapes(read_config(path))
        self.tensors = {name: StoredTensor(shape, "BF16", 2 * math.prod(shape), path) for name, shape in shapes.items()}

    def read(self, name: str, rows: slice = ALL_ROWS) -> Tensor:
        shape = self.tensors[name].shape
        if len(shape) == 1:
            return torch.ones(shape, device="cuda", dtype=torch.bfloat16)
        return torch.randn(shape, device="cuda", dtype=torch.bfloat16).mul_(STD)[rows]


def write_config(path: Path, config: Mapping[str, object]) -> Path:
    """A directory with a configuration and a tokenizer, and no weights."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    write_tokenizer(path)
    return path


@contextmanager
def random_weights() -> Iterator[None]:
    """Inside, models are loaded with random weights on the CUDA device, the same ones every time."""
    torch.manual_seed(0)
    with patch("specserve.models.loader.open_weights", RandomWeights):
        yield
