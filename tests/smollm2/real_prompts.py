"""Twenty prompts of different kinds: chats, code, long texts, many scripts."""

from __future__ import annotations

import inspect
import json
import textwrap
from typing import NamedTuple

SYSTEM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


class RealPrompt(NamedTuple):
    """A text as the model reads it."""

    name: str
    text: str


def chat(*turns: str) -> str:
    """Turns of the user and of the assistant, beginning and ending with the user's."""
    roles = ("user", "assistant")
    said = "".join(f"<|im_start|>{roles[i % 2]}\n{turn}<|im_end|>\n" for i, turn in enumerate(turns))
    return f"{SYSTEM}{said}<|im_start|>assistant\n"


LONG = inspect.getsource(textwrap)
"""Some 5,000 tokens."""
ARTICLE = (
    "The lighthouse stood at the end of a long spit of shingle. In winter the sea came over the road, and the keeper's "
    "children walked to school along the top of the wall. "
)
PROMPTS = (
    RealPrompt("a question", chat("What is the capital of France?")),
    RealPrompt("a list", chat("Name five animals that live in the sea, one per line.")),
    RealPrompt("a correction", chat("What is 17 + 25?", "17 + 25 is 41.", "Are you sure? Please check again.")),
    RealPrompt("a rewriting", chat(f"Rewrite this text with the word river in place of sea:\n{ARTICLE}")),
    RealPrompt("a summary", chat(f"Summarise in one sentence: {ARTICLE * 6}")),
    RealPrompt("a table", chat("Make a table in Markdown of the planets and their distances from the sun.")),
    RealPrompt("an empty question", chat("")),
    RealPrompt("a function", "def is_prime(n):\n    "),
    RealPrompt(
        "a class", "class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, item):\n"
    ),
    RealPrompt(
        "an edit", f"{inspect.getsource(textwrap.dedent)}\n\n# the same, with another name\ndef dedented(text):\n"
    ),
    RealPrompt("SQL", "-- customers without an order\nSELECT c.name FROM customers c LEFT JOIN"),
    RealPrompt("JSON", json.dumps([{"id": i, "name": f"item {i}", "price": i * 1.5} for i in range(8)], indent=1)[:-2]),
    RealPrompt("a long file", LONG[:6000]),
    RealPrompt("a longer file", LONG),
    RealPrompt("a long text", ARTICLE * 30),
    RealPrompt("French and German", "Le chat est assis sur la chaise. Die Katze sitzt auf dem Stuhl. Le chien"),
    RealPrompt("Greek and Russian", "Η θάλασσα είναι μπλε. Море синее. Η γάτα"),
    RealPrompt("Chinese and Japanese", chat("请用中文介绍一下你自己。 日本語でも自己紹介をしてください。")),
    RealPrompt("emoji and combining characters", "🙂🙃 👩‍👩‍👧‍👦 e\u0301 n\u0303 🇫🇷 means"),
    RealPrompt("one token", "The"),
)
