"""Random calls of an index: requests start, commit tokens, get drafts and stop; corpora are added and removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from random import Random

    from twin.pair import Native

Style = Literal["few", "runs", "many", "hub"]


def fresh(random: Random, style: Style) -> list[int]:
    """A few new tokens: of a small or a large alphabet, a run of one, or one with many different followers."""
    length = random.randint(1, 12)
    if style == "runs":
        return [random.randrange(2)] * length
    if style == "hub":
        return [token for _ in range(length) for token in (random.choice([7, 8]), 9, random.randrange(40))]
    return [random.randrange(4 if style == "few" else 1_000_000) for _ in range(length)]


def write(random: Random, style: Style, length: int, text: list[int]) -> list[int]:
    """Continue `text` with new pieces and with copies of earlier ones in which tokens are edited."""
    text = list(text)
    while len(text) < length:
        if not text or random.random() < 0.4:
            text += fresh(random, style)
            continue
        begin = random.randrange(len(text))
        for token in text[begin : begin + random.randint(2, 60)]:
            edit = random.random()
            if edit > 0.06:
                text.append(token)
            if edit < 0.04:
                text += fresh(random, style)[:1]
    return text[:length]


@dataclass(slots=True)
class Request:
    handle: int
    text: list[int]
    num_sent: int  # tokens that the index has

    def take(self, count: int) -> list[int]:
        tokens = self.text[self.num_sent : self.num_sent + count]
        self.num_sent += count
        return tokens


class Workload:
    def __init__(self, index: Native, random: Random, styles: list[Style], *, length: int, num_namespaces: int) -> None:
        self.index, self.random, self.styles = index, random, styles
        self.length, self.num_namespaces = length, num_namespaces
        self.requests: list[Request] = []
        self.earlier: list[list[int]] = [[]]
        self.num_nodes = 0

    def text(self) -> list[int]:
        """Often the beginning of an earlier one comes first."""
        style, length = self.random.choice(self.styles), self.random.randint(0, self.length)
        text = write(self.random, style, length, self.beginning())
        self.earlier.append(text)
        return text

    def beginning(self) -> list[int]:
        earlier = self.random.choice(self.earlier)
        return earlier[: self.random.randint(0, len(earlier))] if self.random.random() < 0.7 else []

    def call(self) -> None:
        call = self.random.choices([self.start, self.step, self.stop, self.change_corpora], [3, 12, 2, 1])[0]
        call()
        self.index.check_stats()

    def start(self) -> None:
        text = self.text()
        prompt = self.random.randint(0, len(text))
        namespace = "abc"[self.random.randrange(self.num_namespaces)]
        self.requests.append(Request(self.index.start(namespace, text[:prompt]), text, prompt))

    def step(self) -> None:
        requests = self.random.sample(self.requests, self.random.randint(0, len(self.requests)))
        taken = [request.take(self.random.choice([0, 1, 1, 2, 5])) for request in requests]
        limits = [self.random.choice([0, 1, 3, 8, 20, 40]) for _ in requests]
        handles, counts = [request.handle for request in requests], [len(tokens) for tokens in taken]
        certain = [self.certain(request) for request in requests] if self.random.random() < 0.4 else None
        drafts = self.index.step(handles, [token for tokens in taken for token in tokens], counts, limits, certain)
        self.num_nodes += sum(len(draft[0]) for draft in drafts if draft is not None)

    def certain(self, request: Request) -> list[int]:
        """Tokens that come next; sometimes others, of which the index is told the same."""
        tokens = request.text[request.num_sent : request.num_sent + self.random.choice([0, 1, 3, 9])]
        return [*tokens, self.random.randrange(9)] if self.random.random() < 0.2 else tokens

    def stop(self) -> None:
        if self.requests:
            request = self.requests.pop(self.random.randrange(len(self.requests)))
            self.index.stop(request.handle, request.take(self.random.randint(0, 20)))

    def change_corpora(self) -> None:
        name = self.random.choice(["x", "y"])
        if self.random.random() < 0.4:
            self.index.remove_corpus(name)
        else:
            self.index.add_corpus(name, [self.text() for _ in range(self.random.randint(0, 3))])
