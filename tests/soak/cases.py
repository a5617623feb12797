"""The distinct requests of a run. Each has one answer: it is greedy or has a seed.

A case is everything that decides the answer. What must not matter to it (`neutral_fields`: priority, salt, drafts) is
drawn anew whenever the case is sent.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from soak.words import NOUNS, PREFIXES, text

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
FIXED_ADAPTERS = ("one", "two")
MOVING, VERSIONS = "moving", ("one", "two", "three")
"""A name that is loaded, replaced and unloaded all the time, and the adapters that it may stand for."""
FIRST_BYTES = range(130, 177)
"""Tokens of first bytes of UTF-8 characters, in the toy's vocabulary and in the demo's."""
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["file", "folder"]},
        "name": {"type": "string", "maxLength": 12},
        "ok": {"type": "boolean"},
    },
    "required": ["kind", "name", "ok"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": name, "strict": True, "parameters": {
        "type": "object", "properties": {"path": {"type": "string", "maxLength": 8}, "deep": {"type": "boolean"}},
        "required": ["path", "deep"], "additionalProperties": False}}}
    for name in ("read_file", "list_files")
]  # fmt: skip


class Case(NamedTuple):
    name: str
    kind: str
    path: str
    body: dict[str, Any]

    @property
    def model(self) -> str | None:
        model: str | None = self.body.get("model")
        return model


def draw_cases(seed: int, count: int) -> list[Case]:
    """`count` cases, of every kind in turn."""
    rng = random.Random(f"cases {seed}")
    kinds = list(DRAW)
    return [DRAW[kinds[i % len(kinds)]](rng, f"case-{i}") for i in range(count)]


def sampling(rng: random.Random, most_tokens: int = 48) -> dict[str, Any]:
    fields: dict[str, Any] = {"max_tokens": rng.randint(1, most_tokens), "ignore_eos": rng.random() < 0.5}
    if rng.random() < 0.5:
        return fields | {"temperature": 0}
    fields |= {"temperature": rng.choice((0.3, 0.7, 1.0)), "seed": rng.randrange(10**6)}
    return fields | rng.choice(({}, {"top_k": 20}, {"top_p": 0.9}, {"min_p": 0.05}, {"repetition_penalty": 1.2}))


def prompt(rng: random.Random) -> str:
    prefix = rng.choice(PREFIXES) if rng.random() < 0.5 else ""
    return prefix + text(rng, rng.randint(1, 4))


def chat(rng: random.Random) -> dict[str, Any]:
    messages = [{"role": "user", "content": prompt(rng)}]
    if rng.random() < 0.3:
        messages += [{"role": "assistant", "content": text(rng, 1)}, {"role": "user", "content": text(rng, 1)}]
    return {"messages": messages, "return_token_ids": True, **sampling(rng)}


def plain_completion(rng: random.Random, name: str) -> Case:
    return Case(name, "completion", COMPLETIONS, {"prompt": prompt(rng), "return_token_ids": True, **sampling(rng)})


def completion_of_several(rng: random.Random, name: str) -> Case:
    prompts = [prompt(rng) for _ in range(rng.randint(1, 2))]
    body = {"prompt": prompts, "n": rng.randint(2, 3), "return_token_ids": True, **sampling(rng, 24)}
    return Case(name, "several choices", COMPLETIONS, body)


def completion_with_logprobs(rng: random.Random, name: str) -> Case:
    body = {"prompt": prompt(rng), "logprobs": rng.randint(0, 4), "return_token_ids": True, **sampling(rng)}
    return Case(name, "logprobs", COMPLETIONS, body)


def completion_with_stops(rng: random.Random, name: str) -> Case:
    stops = rng.sample([*NOUNS, "\n", "(", "e", " s"], rng.randint(1, 4))
    body = {"prompt": prompt(rng), "stop": stops, "return_token_ids": True, **sampling(rng)}
    return Case(name, "stop strings", COMPLETIONS, body | {"include_stop_str_in_output": rng.random() < 0.3})


def completion_of_ids(rng: random.Random, name: str) -> Case:
    """The prompt's last token is one byte, most often the first of a UTF-8 character."""
    ids = [rng.randrange(256) for _ in range(rng.randint(0, 30))]
    body = {"prompt": [*ids, rng.choice(FIRST_BYTES)], "echo": rng.random() < 0.5, "return_token_ids": True}
    if rng.random() < 0.3:
        body["stop"] = ["\ufffd"]
    return Case(name, "token ids", COMPLETIONS, body | sampling(rng))


def plain_chat(rng: random.Random, name: str) -> Case:
    return Case(name, "chat", CHAT, chat(rng) | rng.choice(({}, {"logprobs": True, "top_logprobs": 2})))


def structured_chat(rng: random.Random, name: str) -> Case:
    form: dict[str, Any] = rng.choice(
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "entry", "schema": SCHEMA}}},
            {"structured_outputs": {"regex": "[a-c]{4,12}-[0-9]{2}"}},
            {"guided_choice": ["a file", "a folder", "none of these"]},
        )
    )
    return Case(name, "structured", CHAT, chat(rng) | form | {"ignore_eos": False, "max_tokens": 60})


def chat_with_tools(rng: random.Random, name: str) -> Case:
    choice = rng.choice(("auto", "required", {"type": "function", "function": {"name": "read_file"}}))
    body = chat(rng) | {"tools": TOOLS, "tool_choice": choice, "ignore_eos": False, "max_tokens": 80}
    return Case(name, "tools", CHAT, body)


def adapted(rng: random.Random, name: str) -> Case:
    model = rng.choice((*FIXED_ADAPTERS, MOVING, MOVING))
    case = rng.choice((plain_completion, plain_chat, completion_with_stops))(rng, name)
    return Case(name, f"adapter {model}", case.path, case.body | {"model": model})


def response(rng: random.Random, name: str) -> Case:
    fields = sampling(rng)
    body = {key: fields[key] for key in ("temperature", "seed", "top_k", "top_p") if key in fields}
    body |= {"input": prompt(rng), "max_output_tokens": fields["max_tokens"], "store": rng.random() < 0.3}
    return Case(name, "responses", RESPONSES, body)


def message(rng: random.Random, name: str) -> Case:
    fields = sampling(rng)
    body = {key: fields[key] for key in ("temperature", "seed", "top_k", "top_p", "max_tokens") if key in fields}
    return Case(name, "messages", MESSAGES, body | {"messages": [{"role": "user", "content": prompt(rng)}]})


DRAW = {
    "completion": plain_completion,
    "several choices": completion_of_several,
    "logprobs": completion_with_logprobs,
    "stop strings": completion_with_stops,
    "token ids": completion_of_ids,
    "chat": plain_chat,
    "structured": structured_chat,
    "tools": chat_with_tools,
    "adapter": adapted,
    "more of adapters": adapted,
    "responses": response,
    "messages": message,
}


def neutral_fields(rng: random.Random) -> dict[str, Any]:
    """Fields that change no answer, and who shares blocks and drafts with whom."""
    fields: dict[str, Any] = {}
    if rng.random() < 0.3:
        fields["priority"] = rng.randint(-2, 2)
    if rng.random() < 0.2:
        fields["cache_salt"] = rng.choice(("red", "green", "blue"))
    if rng.random() < 0.3:
        drafters = rng.sample(("ngram", "eagle"), rng.randint(0, 2))
        wishes = {"enabled": False}, {"max_draft_tokens": rng.randint(0, 12)}, {"drafters": drafters}
        fields["speculation"] = rng.choice(wishes)
    return fields
