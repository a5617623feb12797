"""Train the demo model's draft models: an EAGLE-3, an EAGLE, an MTP and a DSpark head, a stand-alone model, and a draft
adapter.

Run: `python train_heads.py OUTPUT_DIR [--minutes 60] [--only eagle3 mtp] [--resume]`, with specserve-plugin-eagle
installed. Writes OUTPUT_DIR/{eagle3,eagle,mtp,standalone,dspark,uno}/ and prints what each accepts on the files that
the demo model was not trained on.

Owns the draft models' numbers; the split of the corpus is `corpus`'s, the training is the plugin's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from corpus import read_corpus
from specserve_eagle.training.run import train
from specserve_eagle.training.train_options import TrainOptions

if TYPE_CHECKING:
    from specserve_eagle.training.evaluate import Acceptance

MODEL = Path(__file__).parent / "src" / "specserve_demo" / "model"
DRAFT_VOCAB = 3072
RECIPES: dict[str, dict[str, int | str]] = {
    "eagle3": {"draft_vocab": DRAFT_VOCAB},
    "eagle": {},
    "mtp": {},
    "standalone": {"layers": 2, "hidden_size": 128},
    "dspark": {"layers": 1, "heads": 8, "kv_heads": 8, "markov": "rnn", "markov_rank": 34, "anchors": 128, "batch": 4},
    "uno": {"rank": 32, "batch": 4, "reuse": 4},
}


def write_texts(folder: Path, name: str, texts: list[str]) -> str:
    """One file for each text, numbered in the corpus's order; returns a glob of them."""
    (folder / name).mkdir()
    for number, text in enumerate(texts):
        (folder / name / f"{number:05}.py").write_text(text, encoding="utf-8")
    return str(folder / name / "*.py")


def options_for(name: str, texts: tuple[str, str], args: argparse.Namespace) -> TrainOptions:
    training, held_out = texts
    common = TrainOptions(
        target=str(MODEL),
        head=name,
        data=(training,),
        eval_data=(held_out,),
        out=args.output_dir / name,
        minutes=args.minutes,
        max_steps=args.max_steps,
        threads=args.threads,
        compile=args.compile,
        resume=args.resume,
    )
    return msgspec.structs.replace(common, **RECIPES[name])


def figures(name: str, acceptance: Acceptance) -> str:
    survival = [round(share, 4) for share in acceptance.survival]
    fields = {"head": name, "figure": acceptance.figure, "survival": survival}
    return json.dumps(fields | {"mean_length": round(acceptance.mean_length, 3), "drafts": acceptance.num_drafts})


def main(args: argparse.Namespace) -> None:
    corpus = read_corpus()
    with tempfile.TemporaryDirectory() as folder:
        texts = (
            write_texts(Path(folder), "train", corpus.train),
            write_texts(Path(folder), "held_out", corpus.held_out),
        )
        for name in args.only:
            print(figures(name, train(options_for(name, texts, args))), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0, help="for each")
    parser.add_argument("--max-steps", type=int, help="for each, if that is less")
    parser.add_argument("--only", nargs="*", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--resume", action="store_true")
    main(parser.parse_args())
