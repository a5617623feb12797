"""Parts of plugins that misbehave on purpose: one method of a working object raises, answers nonsense or is slow."""

from __future__ import annotations

import math
import time
from asyncio import CancelledError

import torch

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.hookspecs import hookimpl
from specserve.types import Draft

FEATURES = ("draft.chain", "draft.tree", "logits.processor", "observer.metrics", "planner.adaptive", "lora.target")


class Nobody(Exception):
    def __str__(self):
        raise ValueError("even its text raises")


class Lying(list):
    """Says it has one length and yields another."""

    def __iter__(self):
        return iter([None] * (len(self) + 3))


class Bottomless:
    """Every attribute is one of itself, and no use is fine."""

    def __getattr__(self, name):
        return Bottomless()

    def __bool__(self):
        raise RuntimeError("neither true nor false")


RUBBISH = {
    "none": None,
    "a number": 7,
    "not a number": math.nan,
    "text": "drafts",
    "an empty list": [],
    "a lying list": Lying([None]),
    "a dict": {0: 1},
    "a tensor": torch.zeros(3),
    "drafts for nobody": [Draft(tokens=(1 << 70,), parents=(5,), survival=(math.inf,))] * 64,
    "something bottomless": Bottomless(),
    "a generator that raises": None,  # made anew for each call
    "an exception": ValueError("returned, not raised"),
}
ERRORS = (
    RuntimeError("no"),
    Nobody(),
    SystemExit(3),
    CancelledError(),
    MemoryError(),
    StopIteration(),
    GeneratorExit(),
)


def raising_generator():
    yield None
    raise RuntimeError("in the middle")


class Misbehaving:
    """Stands before `thing`: `method` does what `behaviour` says, all else is the thing's."""

    def __init__(self, thing, method, behaviour, when=lambda *arguments: True):
        self.__dict__.update(thing=thing, method=method, behaviour=behaviour, when=when, calls=0)

    @property
    def __class__(self):
        """So that it passes for one."""
        return type(self.thing)

    def __getattr__(self, name):
        good = getattr(self.thing, name)
        if name != self.method:
            return good
        return lambda *arguments: self.behave(good, arguments)

    def behave(self, good, arguments):
        if not self.when(*arguments):
            return good(*arguments)
        self.__dict__["calls"] += 1
        return self.behaviour(self.calls, good, arguments)


def raise_something(call, good, arguments):
    """Every kind of error in turn."""
    raise ERRORS[call % len(ERRORS)]


def return_rubbish(call, good, arguments):
    """Every kind of rubbish in turn."""
    kind = list(RUBBISH)[call % len(RUBBISH)]
    return raising_generator() if kind == "a generator that raises" else RUBBISH[kind]


def hold_the_thread(seconds):
    def behaviour(call, good, arguments):
        """Once: so long that everybody else waits."""
        if call == 1:
            time.sleep(seconds)
        return good(*arguments)

    return behaviour


BEHAVIOURS = {"raises": raise_something, "returns rubbish": return_rubbish, "is slow": hold_the_thread(0.1)}


class Plugin:
    """Its hooks by name: each a function of the hook's own arguments."""

    def __init__(self, **hooks):
        for name, function in hooks.items():
            setattr(self, name, hookimpl(function))


def in_process(name, **hooks):
    observes_cache = ("observer.cache",) if "make_cache_observer" in hooks else ()
    features = dict.fromkeys((*FEATURES, *observes_cache), "a test's")
    declaration = PluginDeclaration(name=name, provides=features, compatible=features)
    return {name: InProcessPlugin(Plugin(**hooks), declaration)}
