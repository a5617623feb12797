"""Train the demo model on the Python standard library's source and write it as a Hugging Face directory.

Run: `python train_model.py OUTPUT_DIR --minutes 120 [--resume]` after `train_tokenizer.py OUTPUT_DIR`.

Owns the architecture's numbers, the schedule and the checkpoint format. The schedule is a function of
time, not of steps (constant rate, then a linear cool-down over the last fifth), so the script fits any
machine and any time limit. A checkpoint is written every few minutes; `touch OUTPUT_DIR/cool-down` starts
the cool-down at once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from corpus import read_corpus

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 8192,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "torch_dtype": "bfloat16",
}
H, L, V = CONFIG["hidden_size"], CONFIG["num_hidden_layers"], CONFIG["vocab_size"]
HEADS, KV_HEADS, HEAD_DIM = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"], CONFIG["head_dim"]
COOL_DOWN = 0.2


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: [batch, heads, time, head_dim]; the half-split rotation of Hugging Face's Llama."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        q, kv, ffn = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, CONFIG["intermediate_size"]
        self.input_layernorm = nn.RMSNorm(H, CONFIG["rms_norm_eps"])
        self.post_attention_layernorm = nn.RMSNorm(H, CONFIG["rms_norm_eps"])
        self.qkv = nn.Linear(H, q + 2 * kv, bias=False)
        self.o_proj = nn.Linear(q, H, bias=False)
        self.gate_up = nn.Linear(H, 2 * ffn, bias=False)
        self.down_proj = nn.Linear(ffn, H, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        B, T, _ = x.shape
        qkv = self.qkv(self.input_layernorm(x)).view(B, T, -1, HEAD_DIM).transpose(1, 2)
        q, k, v = qkv.split((HEADS, KV_HEADS, KV_HEADS), dim=1)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        k, v = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(out.transpose(1, 2).reshape(B, T, -1))
        gate, up = self.gate_up(self.post_attention_layernorm(x)).chunk(2, dim=-1)
        return x + self.down_proj(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(V, H)
        self.layers = nn.ModuleList(Layer() for _ in range(L))
        self.norm = nn.RMSNorm(H, CONFIG["rms_norm_eps"])
        for name, p in self.named_parameters():
            if p.ndim == 2:
                shrink = math.sqrt(2 * L) if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
                nn.init.normal_(p, std=0.02 / shrink)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """ids, targets: [batch, time]. Returns the mean cross-entropy in nats per token."""
        T = ids.shape[1]
        freq = CONFIG["rope_theta"] ** (-torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM)
        angle = torch.outer(torch.arange(T).float(), freq)
        cos, sin = angle.cos(), angle.sin()
        x = self.embed(ids).bfloat16()
        for layer in self.layers:
            x = layer(x, cos, sin)
        logits = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(logits.float().view(-1, V), targets.reshape(-1))


def token_stream(texts: list[str], tokenizer: Tokenizer) -> Tensor:
    """One stream of ids: an end-of-text token before every file and one at the end."""
    ids = [0]
    for encoding in tokenizer.encode_batch(texts):
        ids += [*encoding.ids, 0]
    return torch.tensor(ids)


def file_order(texts: list[str], seed: int) -> list[str]:
    order = torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed))
    return [texts[i] for i in order]


def batches(texts: list[str], tokenizer: Tokenizer, length: int, batch: int):
    """Endless (ids, targets) of [batch, length]; every epoch shuffles files, offset and windows anew."""
    epoch = 0
    while True:
        g = torch.Generator().manual_seed(epoch)
        stream = token_stream(file_order(texts, epoch), tokenizer)
        stream = stream[int(torch.randint(length, (1,), generator=g)) :]
        windows = stream[: (len(stream) - 1) // length * length].view(-1, length)
        nexts = stream[1 : windows.numel() + 1].view(-1, length)
        order = torch.randperm(len(windows), generator=g)
        for i in range(0, len(order) - batch + 1, batch):
            yield windows[order[i : i + batch]], nexts[order[i : i + batch]]
        epoch += 1


@torch.no_grad()
def held_out_loss(model: nn.Module, stream: Tensor, length: int = 1024) -> float:
    """Mean nats per token over the whole held-out stream, in windows of `length`."""
    total, count = 0.0, 0
    for start in range(0, len(stream) - 1, 4 * length):
        piece = stream[start : start + 4 * length + 1]
        n = (len(piece) - 1) // length * length
        if n == 0:
            continue
        loss = model(piece[:n].view(-1, length), piece[1 : n + 1].view(-1, length))
        total, count = total + loss.item() * n, count + n
    return total / count


def write_checkpoint(model: Llama, output_dir: Path) -> None:
    """Write bf16 safetensors under Hugging Face's Llama names, and config.json."""
    tensors = {"model.embed_tokens.weight": model.embed.weight, "model.norm.weight": model.norm.weight}
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    for i, layer in enumerate(model.layers):
        p = f"model.layers.{i}."
        for name, w in zip(("q", "k", "v"), layer.qkv.weight.split((q, kv, kv)), strict=True):
            tensors[f"{p}self_attn.{name}_proj.weight"] = w
        gate, up = layer.gate_up.weight.chunk(2)
        tensors |= {
            f"{p}self_attn.o_proj.weight": layer.o_proj.weight,
            f"{p}mlp.gate_proj.weight": gate,
            f"{p}mlp.up_proj.weight": up,
            f"{p}mlp.down_proj.weight": layer.down_proj.weight,
            f"{p}input_layernorm.weight": layer.input_layernorm.weight,
            f"{p}post_attention_layernorm.weight": layer.post_attention_layernorm.weight,
        }
    packed = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in tensors.items()}
    temporary = output_dir / "model.safetensors.tmp"
    save_file(packed, temporary, metadata={"format": "pt"})
    os.replace(temporary, output_dir / "model.safetensors")
    (output_dir / "config.json").write_text(json.dumps(CONFIG, indent=2) + "\n")
    generation = {"bos_token_id": 0, "eos_token_id": 0}
    (output_dir / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def make_optimizers(model: Llama) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the embedding and the norms."""
    matrices = [p for p in model.layers.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if not any(p is m for m in matrices)]
    muon = torch.optim.Muon(matrices, lr=0.01, momentum=0.95, weight_decay=0.02, adjust_lr_fn="original")
    adam = torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)
    for optimizer in (muon, adam):
        for group in optimizer.param_groups:
            group["base_lr"] = group["lr"]
    return [muon, adam]


def train(output_dir: Path, minutes: float, length: int, batch: int, resume: bool) -> None:
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(output_dir / "tokenizer.json"))
    corpus = read_corpus()
    held_out = token_stream(corpus.held_out, tokenizer)
    model = Llama()
    optimizers = make_optimizers(model)
    state_path = output_dir / "train_state.pt"
    spent, tokens = 0.0, 0
    if resume:
        state = torch.load(state_path, weights_only=True)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        spent, tokens = state["seconds"], state["tokens"]
    compiled = torch.compile(model)
    data = batches(corpus.train, tokenizer, length, batch)
    for _ in range(tokens // (length * batch)):
        next(data)
    began, last_save, step = time.time() - spent, time.time(), 0
    cool_from: float | None = None
    while True:
        done = (time.time() - began) / (60 * minutes)
        if cool_from is None and (done >= 1 - COOL_DOWN or (output_dir / "cool-down").exists()):
            cool_from = done
            ending = min(1.0, done + COOL_DOWN)
        if cool_from is not None and done >= ending:
            break
        scale = min(1.0, (step + 1) / 100)
        if cool_from is not None:
            scale *= max(0.02, (ending - done) / (ending - cool_from))
        ids, targets = next(data)
        with torch.autocast("cpu", torch.bfloat16):
            loss = compiled(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_lr"] * scale
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step, tokens = step + 1, tokens + ids.numel()
        if step % 20 == 0:
            seconds, cpu = time.time() - began, time.process_time() / 60
            print(
                f"step {step} {tokens / 1e6:.2f}M tokens {seconds / 60:.1f} min (cpu {cpu:.1f} core-min) "
                f"loss {loss.item():.3f} lr x{scale:.2f} {(tokens / seconds):.0f} tok/s",
                flush=True,
            )
        if time.time() - last_save > 240:
            last_save = time.time()
            write_checkpoint(model, output_dir)
            torch.save(
                {
                    "model": model.state_dict(),
                    "optimizers": [o.state_dict() for o in optimizers],
                    "seconds": time.time() - began,
                    "tokens": tokens,
                },
                state_path,
            )
    write_checkpoint(model, output_dir)
    with torch.autocast("cpu", torch.bfloat16):
        loss_value = held_out_loss(model, held_out)
    result = {
        "held_out_loss_nats": loss_value,
        "tokens": tokens,
        "minutes": (time.time() - began) / 60,
        "core_minutes": time.process_time() / 60,
        "held_out_tokens": len(held_out),
    }
    (output_dir / "training.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    train(args.output_dir, args.minutes, args.length, args.batch, args.resume)
