"""One request. Twin of session.hpp; the list of sources is made anew at every turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from twin.alignment import Trace
from twin.calibration import Calibration, Curves, correct
from twin.candidates import Source, candidates
from twin.contexts import Contexts
from twin.predictor import Predictor, ServerPredictor
from twin.tree_builder import DraftNode, Position, TreeGrower

if TYPE_CHECKING:
    from twin.contexts import Order
    from twin.shared_text import Generation, Library, ShelvedCorpus
    from twin.tree_builder import Limits

RECALL = 64
MOST_SOURCES = 16
LEAST_NEWS = 0.05


class Settings(NamedTuple):
    order: Order
    shared: bool
    limits: Limits


@dataclass(slots=True)
class Experience:
    predictor: ServerPredictor = field(default_factory=ServerPredictor)
    calibration: Curves = field(default_factory=Curves)


@dataclass(slots=True)
class Proposal:
    """A draft, its survival before calibration, and what came true of it."""

    nodes: list[DraftNode] = field(default_factory=list)
    habit: int = 0
    true: set[int] = field(default_factory=set)
    deepest: int = -1  # that came true
    left: bool = False  # a token came that is not in the draft


class Session:
    def __init__(self, library: Library, experience: Experience, settings: Settings, namespace: str) -> None:
        self.library, self.settings = library, settings
        self.shelf = library.shelf(namespace)
        self.own, self.text, self.trace = Contexts(settings.order), "", Trace()
        self.generation: Generation | None = None
        self.shared_text = ""  # as far as it stands in that generation
        self.places: dict[object, str] = {}  # the longest context in each source
        self.sources: list[Source] = []
        self.predictor = Predictor(experience.predictor)
        self.calibration = Calibration(experience.calibration)
        self.proposal = Proposal()

    def enter(self, token: str) -> None:
        """A token becomes text."""
        self.follow_sources()
        self.trace.move(self.text, self.text[-1:], token)
        known, seen = self.own.extend(self.text, token, len(self.text))
        self.text += token
        for (key, place), source in zip(list(self.places.items()), self.sources, strict=True):
            self.places[key] = source.contexts.advance(place, token)
        self.places[self.own] = known  # not the context that just came to be
        if self.settings.limits.match_type == "learned":
            self.trace.consider(seen, len(known))
        if self.generation is not None:
            self.places[self.generation] = self.generation.contexts.extend(self.shared_text, token, None).known
            self.shared_text += token
            self.library.count(self.generation)

    def append(self, token: str) -> None:
        """A token that was decided: first a lesson, then text."""
        self.follow_sources()
        self.learn(token)
        self.enter(token)

    def follow_sources(self) -> None:
        """Places in sources that are new are found by the last tokens."""
        listed: list[tuple[Generation | ShelvedCorpus | Contexts, Source]] = [(self.own, Source(self.own, "own"))]
        if self.settings.shared:
            current = self.library.current(self.shelf)
            if current is not self.generation:
                self.generation, self.shared_text = current, ""
            listed += [(g, Source(g.contexts, "shared")) for g in self.shelf.generations]
        corpora = sorted(self.library.corpora.items())
        listed += [(shelved, Source(shelved.corpus.contexts, "corpus")) for _, shelved in corpora]
        listed = listed[:MOST_SOURCES]
        self.places = {
            key: self.places[key] if key in self.places else self.recall(source.contexts) for key, source in listed
        }
        self.sources = [source for _, source in listed]

    def recall(self, contexts: Contexts) -> str:
        place = ""
        for token in self.text[-RECALL:]:
            place = contexts.advance(place, token)
        return place

    def learn(self, token: str) -> None:
        """Every candidate up to the token that came is a trial."""
        predicted = False
        places, window = list(self.places.values()), self.settings.limits.window
        for heard, candidate in enumerate(candidates(self.sources, places, self.trace, self.text, window)):
            hit = candidate.token == token
            self.predictor.learn(candidate.evidence, hit)
            predicted = hit and heard == 0
            if hit:
                break
        self.trace.get_used_to(predicted)
        self.judge(token)

    def judge(self, token: str) -> None:
        proposal = self.proposal
        if proposal.left:
            return
        for i, node in enumerate(proposal.nodes):
            if (node.parent, node.token) == (proposal.deepest, token):
                proposal.true.add(i)
                proposal.deepest = i
                return
        proposal.left = True

    def settle(self) -> None:
        """What became of the last draft is learned; what may still come true is left open."""
        proposal = self.proposal
        is_open: list[bool] = []
        for i, node in enumerate(proposal.nodes):
            undecided = node.parent == proposal.deepest or (node.parent >= 0 and is_open[node.parent])
            is_open.append(not proposal.left and i not in proposal.true and undecided)
            if not is_open[i]:
                before = 1.0 if node.parent < 0 else proposal.nodes[node.parent].survival
                news = max(LEAST_NEWS, 1 - node.survival / before)
                self.calibration.learn(node.survival, proposal.habit, i in proposal.true, news)

    def draft(self, limit: int) -> list[DraftNode]:
        """After `settle` and `follow_sources`, and after those of all other requests of the step."""
        position = Position(self.sources, list(self.places.values()), self.trace, self.text)
        nodes = TreeGrower(position, self.predictor, self.settings.limits).grow(limit)
        self.proposal = Proposal(nodes, self.trace.habit_level)
        curve = self.calibration.curve(self.proposal.habit)
        corrected: list[DraftNode] = []
        for node in nodes:
            survival = correct(node.survival, curve)
            if node.parent >= 0:
                survival = min(survival, corrected[node.parent].survival)
            corrected.append(node._replace(survival=survival))
        return corrected
