"""Built-in prompts of four kinds. Each number and seed gives another prompt, the same one on every machine.

code   the begin of a module, and a function to write
edit   a module, and a name to change in it: the answer repeats most of it
chat   a question in plain words
json   a text, and the records to take out of it
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from specserve_bench.prompts.prompt import Prompt
from specserve_bench.prompts.words import CITIES, ENTITIES, FIELDS, PEOPLE

if TYPE_CHECKING:
    from collections.abc import Callable

OPERATIONS = {
    "load": "Read every {entity} from a CSV file and return them sorted by {field}.",
    "merge": "Merge two lists of {entity}s; of two with the same {field} keep the newer one.",
    "count": "Count how many {entity}s there are for each {field}, most frequent first.",
    "validate": "Raise ValueError that names every {entity} whose {field} is missing or empty.",
    "index": "Return a dictionary from {field} to the {entity}s that have it.",
    "render": "Return an aligned text table of all {entity}s with a column for {field}.",
}
QUESTIONS = (
    "Explain to a new colleague how a {entity} differs from a {other}, with two examples from daily life.",
    "I want to keep a record of every {entity} in our town. Which facts should I write down, and why?",
    "Write a friendly letter to {person} in {city} about a {entity} that arrived too late.",
    "What are the most important advantages and disadvantages of sharing a {entity} with neighbours?",
    "Tell a short story in which {person} finds a {entity} in {city}.",
    "Give me a plan of seven days for learning everything about a {entity}.",
    "Summarise in plain words how a {entity} and a {other} can be used together, step by step.",
)


def built_in(kind: str, number: int, seed: int) -> Prompt:
    """`kind` is one of KINDS."""
    chance = random.Random(f"{seed} {kind} {number}")
    return Prompt(kind=kind, text=MAKERS[kind](chance))


def code(chance: random.Random) -> str:
    entity, field = chance.choice(ENTITIES), chance.choice(FIELDS)
    verb, task = chance.choice(list(OPERATIONS.items()))
    return (
        f"{module(entity, chance.sample(FIELDS, 5))}\n\n"
        f"# Task: write the function {verb}_{entity}s for this module.\n"
        f"# {task.format(entity=entity, field=field)}\n\n"
        f"def {verb}_{entity}s("
    )


def edit(chance: random.Random) -> str:
    entity, other = chance.sample(ENTITIES, 2)
    source = module(entity, chance.sample(FIELDS, 8))
    return (
        f"{source}\n\n# Task: write the whole module once more, and change nothing in it but this: the class "
        f"{entity.title()} is now called {other.title()}.\n\n" + source.partition("\n")[0]
    )


def chat(chance: random.Random) -> str:
    entity, other = chance.sample(ENTITIES, 2)
    question = chance.choice(QUESTIONS)
    return question.format(entity=entity, other=other, person=chance.choice(PEOPLE), city=chance.choice(CITIES))


def json(chance: random.Random) -> str:
    entity = chance.choice(ENTITIES)
    sentences = [
        f"{chance.choice(PEOPLE)} from {chance.choice(CITIES)} bought {chance.randint(2, 40)} {entity}s "
        f"for {chance.randint(10, 900)} euros on {chance.randint(1, 28)} May."
        for _ in range(8)
    ]
    return (
        " ".join(sentences) + "\n\nAnswer with a JSON array and nothing else. It has an object with person, city, "
        "quantity, price and day for each purchase above, in this order:\n"
    )


def module(entity: str, fields: list[str]) -> str:
    """Source text of a Python module."""
    name = entity.title()
    lines = [f'"""Keeps {entity}s in memory."""', "", "from dataclasses import dataclass", "", "", "@dataclass"]
    lines += [f"class {name}:", *(f"    {field}: str" for field in fields), "", "", f"class {name}Store:"]
    lines += ["    def __init__(self) -> None:", f"        self.{entity}s: list[{name}] = []"]
    for field in fields:
        lines += [
            "",
            f"    def find_by_{field}(self, {field}: str) -> list[{name}]:",
            f"        return [{entity} for {entity} in self.{entity}s if {entity}.{field} == {field}]",
        ]
    return "\n".join(lines)


MAKERS: dict[str, Callable[[random.Random], str]] = {"code": code, "edit": edit, "chat": chat, "json": json}
KINDS = tuple(MAKERS)
