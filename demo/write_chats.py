"""Chats of SmolLM2 with made-up users, to train a draft head on: what the target itself writes is the best text for it.

Run: `python demo/write_chats.py URL OUTPUT_DIR [--minutes 15]` beside a server of the model. Half of the questions are
of `chat_topics`, some ask for code or about a paragraph of the readmes of installed packages, and a quarter the model
asks itself: it continues the beginning of a user's turn (Xu et al., "Magpie", 2024). Three of five answers are greedy,
the others sampled. Writes OUTPUT_DIR/train/*.txt, a chat each that ends where a sentence comes the third time, and
OUTPUT_DIR/held_out/*.txt, greedy answers to the questions that are held out.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sysconfig
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp

from chat_topics import CODE, CODE_QUESTIONS, HELD_OUT, PASSAGE_QUESTIONS, QUESTIONS, TOPICS, each
from demo_requests import SYSTEM, asked
from demo_stream import DemoError

if TYPE_CHECKING:
    from collections.abc import Iterator

USER, ASSISTANT, END = "<|im_start|>user\n", "<|im_start|>assistant\n", "<|im_end|>\n"
TEMPERATURES, LENGTHS = (0.0, 0.0, 0.0, 0.7, 1.0), (200, 400, 600)
OF_TOPICS, OF_CODE, OF_PASSAGES = 0.5, 0.62, 0.75
"""Shares of questions, one on top of the other; the rest the model asks."""
SHORTEST, LONGEST = 250, 1200
"""Characters of a paragraph."""
LETTERS = 0.9
SENTENCE = re.compile(r"[^\n.;]{12,}(?:[\n.;]+|$)")
REPEATED = 3


class Answer(NamedTuple):
    text: str
    ended: bool
    """By the model, not by its limit."""


class Model:
    """The server's model, asked for what follows a text."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url
        self.num_tokens = 0

    async def continued(self, prompt: str, **fields: Any) -> Answer:
        body = {"prompt": prompt, "stop": ["<|im_end|>"], **fields}
        async with self.session.post(f"{self.url}/v1/completions", json=body) as response:
            answer = await response.json()
            if response.status != 200:
                raise DemoError(f"{self.url} answered {response.status}: {answer}")
        choice = answer["choices"][0]
        self.num_tokens += answer["usage"]["completion_tokens"]
        return Answer(choice["text"], choice["finish_reason"] == "stop")


def paragraphs() -> list[str]:
    """Of the readmes of installed packages."""
    found = []
    for file in sorted(Path(sysconfig.get_path("purelib")).glob("*/METADATA")):
        parts = re.split(r"\n\s*\n", file.read_text(encoding="utf-8", errors="replace"))
        found += [" ".join(part.split()) for part in parts]
    return [text for text in found if SHORTEST < len(text) < LONGEST and share_of_letters(text) > LETTERS]


def share_of_letters(text: str) -> float:
    return sum(letter.isalpha() or letter == " " for letter in text) / len(text)


def questions(seed: int) -> Iterator[str | None]:
    """Endless; None: the model asks."""
    drawn, passages, topics = random.Random(seed), paragraphs(), each(TOPICS)
    while True:
        kind = drawn.random()
        if kind < OF_TOPICS:
            yield drawn.choice(each(QUESTIONS)).format(t=drawn.choice(topics), u=drawn.choice(topics))
        elif kind < OF_CODE:
            yield drawn.choice(each(CODE_QUESTIONS)).format(task=drawn.choice(each(CODE)))
        elif kind < OF_PASSAGES and passages:
            yield drawn.choice(each(PASSAGE_QUESTIONS)).format(passage=drawn.choice(passages))
        else:
            yield None


async def write_chat(model: Model, question: str | None, drawn: random.Random) -> str | None:
    """A chat of one or two questions; None where the model asked nothing."""
    text = SYSTEM
    for _ in range(1 if drawn.random() < 0.7 else 2):
        if question is None:
            seed = drawn.randrange(1 << 31)
            mine = await model.continued(text + USER, max_tokens=150, temperature=1.0, top_p=0.9, seed=seed)
            question = mine.text.strip()
            if not mine.ended or len(question) < 8:
                break
        text += USER + question + END + ASSISTANT
        fields = {"max_tokens": drawn.choice(LENGTHS), "temperature": drawn.choice(TEMPERATURES)}
        answer = await model.continued(text, seed=drawn.randrange(1 << 31), **fields)
        text += answer.text
        if not answer.ended:
            break
        text, question = text + END, None
    return before_repetition(text) if ASSISTANT in text else None


def before_repetition(text: str) -> str:
    """Up to where a sentence comes the third time, whatever numbers are in it: small models repeat themselves."""
    seen: Counter[str] = Counter()
    for match in SENTENCE.finditer(text):
        sentence = re.sub(r"\d+", "#", match.group().strip())
        seen[sentence] += 1
        if seen[sentence] == REPEATED:
            return text[: match.start()]
    return text


async def write_many(model: Model, folder: Path, number: int, stream: Iterator[str | None], end: float) -> None:
    drawn, written = random.Random(number), 0
    while time.monotonic() < end:
        if (chat := await write_chat(model, next(stream), drawn)) is not None:
            (folder / f"{number:03}-{written:05}.txt").write_text(chat, encoding="utf-8")
            written += 1


async def write_held_out(model: Model, folder: Path) -> None:
    lines = HELD_OUT.strip().splitlines()
    answers = await asyncio.gather(*(model.continued(asked(line), max_tokens=300, temperature=0.0) for line in lines))
    for number, (line, answer) in enumerate(zip(lines, answers, strict=True)):
        (folder / f"{number:02}.txt").write_text(asked(line) + answer.text + END, encoding="utf-8")


async def main(args: argparse.Namespace) -> None:
    folders = [args.output_dir / name for name in ("train", "held_out")]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    begun, stream = time.monotonic(), questions(args.seed)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(None), connector=connector) as session:
        model = Model(session, args.url)
        await write_held_out(model, folders[1])
        end = begun + 60 * args.minutes
        async with asyncio.TaskGroup() as tasks:
            for number in range(args.concurrent):
                tasks.create_task(write_many(model, folders[0], number, stream, end))
            while (left := end - time.monotonic()) > 0:
                await asyncio.sleep(min(15.0, left))
                print(f"{time.monotonic() - begun:.0f} s: {model.num_tokens} tokens", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("output_dir", type=Path)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--concurrent", type=int, default=64, help="chats at once")
    parser.add_argument("--seed", type=int, default=0)
    asyncio.run(main(parser.parse_args()))
