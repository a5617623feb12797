"""Small assistants of Gemma 4, random or made to be right, and transformers' own drafts with them."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma4AssistantForCausalLM

from specserve.models.read_config import parse_config
from specserve.models.tensor_names import expected_shapes
from specserve_eagle.assistant.config import FAMILY, own_text
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FULL, SLIDING = "full_attention", "sliding_attention"
SHARING = {"num_hidden_layers": 5, "layer_types": [SLIDING, FULL] * 2 + [FULL], "num_kv_shared_layers": 2}
WEIGHTS = "model.safetensors"
CLUSTERED = {"use_ordered_embeddings": True, "num_centroids": 10, "centroid_intermediate_top_k": 3}


def write_gemma4(path: Path, **changes: Any) -> Path:
    """A target, whose greedy text varies. Its vocabulary can be cut in ten clusters."""
    return write_checkpoint(path, **({"architecture": "gemma4_text", **SHARING} | changes))


def write_assistant(
    path: Path, target: Path, *, seed: int = 1, inner: dict[str, Any] | None = None, **changes: Any
) -> Path:
    """Three random layers, narrower than the target's. inner: keys of `text_config`; changes: of config.json."""
    theirs = json.loads((target / "config.json").read_text())
    same = ("head_dim", "global_head_dim", "num_key_value_heads", "sliding_window", "vocab_size", "rms_norm_eps")
    text = {key: theirs[key] for key in same} | {"model_type": "gemma4_text", "hidden_size": 48}
    text |= {"intermediate_size": 64, "num_hidden_layers": 3, "layer_types": [SLIDING, FULL, FULL]}
    text |= {"num_attention_heads": 2 * theirs["num_key_value_heads"], "num_kv_shared_layers": 3}
    text |= {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "enable_moe_block": False}
    text |= {"max_position_embeddings": theirs["max_position_embeddings"], **(inner or {})}
    raw = {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "text_config": text}
    raw |= {"backbone_hidden_size": theirs["hidden_size"], "tie_word_embeddings": True, "dtype": "float32", **changes}
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(raw))
    save_file(random_tensors(raw, seed), path / WEIGHTS, metadata={"format": "pt"})
    return path


def random_tensors(raw: dict[str, Any], seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    layers = parse_config(own_text(raw, raw["text_config"]), {}, where="config.json", families=(FAMILY,))
    size, backbone = layers.hidden_size, raw["backbone_hidden_size"]
    shapes = {"pre_projection.weight": (size, 2 * backbone), "post_projection.weight": (backbone, size)}
    tensors = {}
    for name, shape in (shapes | expected_shapes(layers)).items():
        noise = torch.randn(shape, generator=generator)
        one = name.endswith(("norm.weight", "layer_scalar"))
        tensors[name] = 1 + 0.2 * noise if one else noise / math.sqrt(shape[-1])
    if raw.get("use_ordered_embeddings"):
        count = raw["num_centroids"]
        tensors["masked_embedding.centroids.weight"] = torch.randn((count, size), generator=generator)
        tensors["masked_embedding.token_ordering"] = torch.randperm(layers.vocab_size, generator=generator)
    return tensors


def change_assistant(path: Path, **tensors: torch.Tensor | None) -> None:
    """None: without it."""
    changed = {key: value for key, value in (load_file(path / WEIGHTS) | tensors).items() if value is not None}
    save_file(changed, path / WEIGHTS, metadata={"format": "pt"})


class Theirs:
    """transformers' drafts: its assistant over the keys of what its target has computed."""

    def __init__(self, target: Path, assistant: Path) -> None:
        self.target = AutoModelForCausalLM.from_pretrained(target, attn_implementation="eager").eval()
        self.assistant = Gemma4AssistantForCausalLM.from_pretrained(assistant, attn_implementation="eager").eval()

    @torch.inference_mode()
    def steps(self, tokens: Sequence[int], count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The logits and the hidden state of each token of a greedy draft behind these."""
        ids = torch.tensor([list(tokens)])
        wanted = {"output_hidden_states": True, "return_shared_kv_states": True}
        seen = self.target(ids[:, :-1], use_cache=False, **wanted)
        hidden, last, steps = seen.hidden_states[-1][:, -1:], ids[:, -1:], []
        for _ in range(count):
            embedded = self.target.get_input_embeddings()(last)
            made = self.assistant(
                inputs_embeds=torch.cat([embedded, hidden], -1),
                position_ids=torch.tensor([[len(tokens) - 1]]),
                shared_kv_states=seen.shared_kv_states,
            )
            hidden, last = made.last_hidden_state, made.logits.argmax(-1)
            steps.append((made.logits[0, 0], hidden[0, 0]))
        return steps

    def draft(self, tokens: Sequence[int], count: int) -> tuple[int, ...]:
        return tuple(int(logits.argmax()) for logits, _ in self.steps(tokens, count))

    @torch.inference_mode()
    def greedy(self, prompt: Sequence[int], count: int) -> list[int]:
        tokens = list(prompt)
        for _ in range(count):
            tokens.append(int(self.target(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax()))
        return tokens[len(prompt) :]
