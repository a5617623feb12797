"""The reference heads against transformers' whole models, where a head's weights make it one, or against arithmetic."""

from __future__ import annotations

import msgspec
import pytest
import torch
import torch.nn.functional as F
from reference_heads import FORWARDS, draft_greedily, eagle3_forward, eagle_forward, mtp_forward, rms_norm
from torch import nn
from toy_heads import HEADS, INNER, KV_HEADS, D, H, V, random_head, toy_target, write_head
from transformers import LlamaConfig, LlamaForCausalLM

from specserve_eagle.checkpoints import read_head_config

N = 12
FORM = {"eagle3": "specforge", "eagle": "eagle", "mtp": "deepseek-beside"}
MLP = ("gate_proj", "up_proj", "down_proj")


@pytest.fixture(autouse=True)
def _inference():
    with torch.inference_mode():
        yield


def head_of(tmp_path, kind):
    """(tensors, config) of a random head."""
    head = random_head(kind)
    return head, read_head_config(write_head(tmp_path, FORM[kind], head), toy_target())


def inputs_of(kind, rows=N, seed=3):
    """(hidden, next tokens, embedding, output head)"""
    generator = torch.Generator().manual_seed(seed)
    width = 3 * H if kind == "eagle3" else H
    hidden, tokens = torch.randn(rows, width, generator=generator), torch.randint(V, (rows,), generator=generator)
    return hidden, tokens, torch.randn(V, H, generator=generator), torch.randn(V, H, generator=generator)


def one_layer_model(head, *, input_norm, vocab):
    """transformers' Llama of the head's layer, without the columns that read embeddings."""
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=H,
            intermediate_size=INNER,
            num_hidden_layers=1,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            head_dim=8,
            vocab_size=vocab,
            rms_norm_eps=1e-5,
            attn_implementation="sdpa",
        )
    ).eval()
    layer = model.model.layers[0]
    for name in ("q_proj", "k_proj", "v_proj"):
        getattr(layer.self_attn, name).weight.copy_(head[f"layers.0.{name}"][:, -H:])
    layer.self_attn.o_proj.weight.copy_(head["layers.0.o_proj"])
    for name in MLP:
        getattr(layer.mlp, name).weight.copy_(head[f"layers.0.{name}"])
    layer.post_attention_layernorm.weight.copy_(head["layers.0.post_attention_norm"])
    layer.input_layernorm.weight.copy_(input_norm)
    return model


def test_mtp_is_a_one_layer_llama_behind_fc(tmp_path):
    head, config = head_of(tmp_path, "mtp")
    hidden, tokens, embedding, table = inputs_of("mtp")
    model = one_layer_model(head, input_norm=head["layers.0.input_norm"], vocab=V)
    model.model.norm.weight.copy_(head["norm"])
    model.lm_head.weight.copy_(table)
    embedded = rms_norm(embedding[tokens], head["enorm"], 1e-5)
    x = torch.cat((embedded, rms_norm(hidden, head["hnorm"], 1e-5)), -1) @ head["fc"].T
    expected = model(inputs_embeds=x[None], output_hidden_states=True)
    own, logits = mtp_forward(head, config, hidden, tokens, embedding, table)
    torch.testing.assert_close(logits, expected.logits[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(own, expected.hidden_states[-1][0], rtol=1e-4, atol=1e-5)  # behind the final norm


def test_eagle3_without_its_embedding_columns_is_a_one_layer_llama(tmp_path):
    head, config = head_of(tmp_path, "eagle3")
    for name in ("q_proj", "k_proj", "v_proj"):
        head[f"layers.0.{name}"][:, :H] = 0
    hidden, tokens, embedding, _ = inputs_of("eagle3")
    model = one_layer_model(head, input_norm=head["layers.0.hidden_norm"], vocab=D)
    model.model.norm.weight.copy_(head["norm"])
    model.lm_head.weight.copy_(head["lm_head"])
    expected = model(inputs_embeds=(hidden @ head["fc"].T)[None]).logits[0]
    _, logits = eagle3_forward(head, config, hidden, tokens, embedding)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


def test_eagle_is_a_one_layer_llama_without_norms_behind_fc(tmp_path):
    head, config = head_of(tmp_path, "eagle")
    hidden, tokens, embedding, table = inputs_of("eagle")
    model = one_layer_model(head, input_norm=torch.ones(H), vocab=V)
    model.model.layers[0].input_layernorm = model.model.norm = nn.Identity()
    model.lm_head.weight.copy_(table)
    x = torch.cat((embedding[tokens], hidden), -1) @ head["fc"].T + head["fc.bias"]
    expected = model(inputs_embeds=x[None], output_hidden_states=True)
    own, logits = eagle_forward(head, config, hidden, tokens, embedding, table)
    torch.testing.assert_close(own, expected.hidden_states[-1][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits, expected.logits[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("before", [False, True])
def test_one_pair_of_eagle3_by_hand(tmp_path, before):
    head, config = head_of(tmp_path, "eagle3")
    config = msgspec.structs.replace(config, norm_before_residual=before)
    hidden, tokens, embedding, _ = inputs_of("eagle3", rows=1)
    x = hidden @ head["fc"].T
    normed = rms_norm(x, head["layers.0.hidden_norm"], 1e-5)
    both = torch.cat((rms_norm(embedding[tokens], head["layers.0.input_norm"], 1e-5), normed), -1)
    values = (both @ head["layers.0.v_proj"].T).view(KV_HEADS, -1).repeat_interleave(HEADS // KV_HEADS, 0).view(1, -1)
    y = (normed if before else x) + values @ head["layers.0.o_proj"].T  # one key: its value has weight 1
    expected = y + mlp(head, rms_norm(y, head["layers.0.post_attention_norm"], 1e-5))
    own, logits = eagle3_forward(head, config, hidden, tokens, embedding)
    torch.testing.assert_close(own, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(logits, rms_norm(expected, head["norm"], 1e-5) @ head["lm_head"].T, rtol=1e-4, atol=1e-4)


def mlp(head, x):
    gate, up, down = (head[f"layers.0.{name}"] for name in MLP)
    return (F.silu(x @ gate.T) * (x @ up.T)) @ down.T


@pytest.mark.parametrize("kind", FORWARDS)
def test_later_pairs_change_nothing(tmp_path, kind):
    head, config = head_of(tmp_path, kind)
    hidden, tokens, *tables = inputs_of(kind)
    _, whole = FORWARDS[kind](head, config, hidden, tokens, *tables)
    _, part = FORWARDS[kind](head, config, hidden[:5], tokens[:5], *tables)
    torch.testing.assert_close(whole[:5], part, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", FORWARDS)
def test_the_first_draft_token_is_the_last_pairs_best(tmp_path, kind):
    head, config = head_of(tmp_path, kind)
    hidden, tokens, *tables = inputs_of(kind)
    best = int(FORWARDS[kind](head, config, hidden, tokens, *tables)[1][-1].argmax())
    drafts = draft_greedily(head, config, (hidden, tokens), 4, tuple(tables))
    assert drafts[0] == (3 + 2 * best if kind == "eagle3" else best)  # d2t of the toy
    assert drafts[:2] == draft_greedily(head, config, (hidden, tokens), 2, tuple(tables))


@pytest.mark.parametrize("kind", FORWARDS)
def test_the_second_draft_token_reads_the_heads_own_state(tmp_path, kind):
    head, config = head_of(tmp_path, kind)
    hidden, tokens, *tables = inputs_of(kind)
    own, _ = FORWARDS[kind](head, config, hidden, tokens, *tables)
    first, second = draft_greedily(head, config, (hidden, tokens), 2, tuple(tables))
    states = hidden @ head["fc"].T if kind == "eagle3" else hidden
    states, tokens = torch.cat((states, own[-1:])), torch.cat((tokens, torch.tensor([first])))
    best = int(FORWARDS[kind](head, config, states, tokens, *tables)[1][-1].argmax())
    assert second == (3 + 2 * best if kind == "eagle3" else best)


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
def test_the_order_of_the_inputs_is_the_order_of_fcs_columns(tmp_path, kind):
    head, config = head_of(tmp_path, kind)
    inputs = inputs_of(kind)
    _, expected = FORWARDS[kind](head, config, *inputs)
    swapped = head | {"fc": head["fc"].roll(H, 1)}
    _, logits = FORWARDS[kind](swapped, msgspec.structs.replace(config, embedding_first=False), *inputs)
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)
