"""Train the demo model's two LoRA adapters: `docstrings` for code that explains itself, `tests` for test code.

Run: `python train_adapters.py OUTPUT_DIR [--steps 150]`, in the development environment (transformers, peft). Writes
OUTPUT_DIR/NAME/ in PEFT's format and prints what each gains on held-out text of its kind.

Owns which text is of which kind and the adapters' numbers; the split of the corpus is `corpus`'s.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM

from corpus import read_corpus

MODEL = Path(__file__).parent / "src" / "specserve_demo" / "model"
LENGTH, BATCH = 256, 8
RATES = {"docstrings": 2e-3, "tests": 1.5e-3}
CONFIGS = {
    "docstrings": LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"),
    "tests": LoraConfig(
        r=4,
        lora_alpha=4,
        use_rslora=True,
        target_modules=["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        rank_pattern={"o_proj": 2},
        task_type="CAUSAL_LM",
    ),
}
"""Different in what they adapt, how far and how it is scaled, so that together they show what can be served."""


def is_explained(node: ast.AST, source: str) -> bool:
    """Is at least a third of a function or class docstring?"""
    if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return False
    return 3 * len(ast.get_docstring(node, clean=False) or "") >= len(source)


def is_test(node: ast.AST, source: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and len(source) > 300


KINDS = {"docstrings": is_explained, "tests": is_test}


def pieces(text: str) -> dict[str, list[str]]:
    """The functions and classes of each kind, as they stand in the file."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return found
    lines = text.splitlines(keepends=True)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            source = "".join(lines[node.lineno - 1 : node.end_lineno])
            for kind, belongs in KINDS.items():
                if len(source) < 4000 and belongs(node, source):
                    found[kind].append(source)
    return found


def kinds(texts: list[str]) -> dict[str, list[str]]:
    each = [pieces(text) for text in texts]
    return {kind: [piece for found in each for piece in found[kind]] for kind in KINDS}


def windows(texts: list[str], tokenizer: Tokenizer) -> Tensor:
    """[windows, LENGTH + 1], of texts one after the other with an end-of-text token before each."""
    ids = [0]
    for encoding in tokenizer.encode_batch(texts):
        ids += [*encoding.ids, 0]
    count = (len(ids) - 1) // LENGTH
    return torch.stack([torch.tensor(ids[i * LENGTH : (i + 1) * LENGTH + 1]) for i in range(count)])


def loss_of(model: torch.nn.Module, batch: Tensor) -> Tensor:
    """Mean nats per token."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(batch[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())


@torch.no_grad()
def held_out_loss(model: torch.nn.Module, held_out: Tensor) -> float:
    losses = [loss_of(model, batch).item() * len(batch) for batch in held_out[:160].split(BATCH)]
    return sum(losses) / min(len(held_out), 160)


def train(name: str, texts: Tensor, held_out: Tensor, steps: int, output: Path) -> dict[str, float]:
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    before = held_out_loss(base, held_out)
    model = get_peft_model(base, CONFIGS[name])
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=RATES[name], weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATES[name], total_steps=steps, pct_start=0.1)
    order = torch.randint(len(texts), (steps, BATCH), generator=torch.Generator().manual_seed(1))
    for step, chosen in enumerate(order):
        loss = loss_of(model, texts[chosen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            print(f"{name}: step {step} of {steps}, loss {loss.item():.3f}", flush=True)
    after = held_out_loss(model, held_out)
    model.save_pretrained(output / name)
    slim(output / name)
    return {"base": before, "adapted": after, "held_out_windows": min(len(held_out), 160), "steps": steps}


def slim(directory: Path) -> None:
    """bfloat16 weights, and a configuration without the path of this machine or the model card's skeleton."""
    file, config = directory / "adapter_model.safetensors", directory / "adapter_config.json"
    save_file({k: v.to(torch.bfloat16) for k, v in load_file(file).items()}, file, metadata={"format": "pt"})
    fields = json.loads(config.read_text())
    fields["base_model_name_or_path"] = "demo"
    config.write_text(json.dumps(dict(sorted(fields.items())), indent=2) + "\n")
    (directory / "README.md").unlink(missing_ok=True)


def main(output: Path, steps: int, names: list[str]) -> None:
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    corpus = read_corpus()
    training, held_out = kinds(corpus.train), kinds(corpus.held_out)
    for name in names:
        figures = train(name, windows(training[name], tokenizer), windows(held_out[name], tokenizer), steps, output)
        print(json.dumps({"adapter": name, **figures}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--only", nargs="*", default=list(CONFIGS), choices=list(CONFIGS))
    args = parser.parse_args()
    main(args.output_dir, args.steps, args.only)
