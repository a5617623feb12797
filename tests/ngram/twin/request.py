"""One request. Twin of request.hpp; the list of sources is made anew for every token."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from specserve_ngram._native import Origin, Tuning
from twin.alignment import Alignment
from twin.calibration import Calibration, Curves, correct
from twin.candidates import Position, Source, candidates
from twin.contexts import Contexts
from twin.predictor import GlobalPredictor, Predictor
from twin.tree_builder import DraftNode, TreeBuilder

if TYPE_CHECKING:
    from twin.contexts import Ranking
    from twin.shared_text import CorpusEntry, Generation, SharedText
    from twin.tree_builder import DraftOptions


class Settings(NamedTuple):
    ranking: Ranking
    shared: bool
    draft: DraftOptions


@dataclass(slots=True)
class GlobalStatistics:
    predictor: GlobalPredictor = field(default_factory=GlobalPredictor)
    calibration: Curves = field(default_factory=Curves)


@dataclass(slots=True)
class Drafted:
    """A draft, its survival estimates before calibration, and its outcome so far."""

    certain: str = ""  # it begins behind these tokens, of which those that are still to come are left here
    nodes: list[DraftNode] = field(default_factory=list)
    hit_rate: int = 0
    accepted: set[int] = field(default_factory=set)
    deepest_accepted: int = -1
    is_left: bool = False  # a token came that is not in the draft


class Request:
    def __init__(self, shared_text: SharedText, everyone: GlobalStatistics, settings: Settings, namespace: str) -> None:
        self.shared_text, self.settings = shared_text, settings
        self.namespace = shared_text.namespace(namespace)
        self.own, self.text, self.alignment = Contexts(settings.ranking), "", Alignment()
        self.generation: Generation | None = None
        self.text_in_generation = ""
        self.matches: dict[object, str] = {}  # the longest context in each source
        self.sources: list[Source] = []
        self.predictor = Predictor(everyone.predictor)
        self.calibration = Calibration(everyone.calibration)
        self.drafted = Drafted()

    def add_to_text(self, token: str) -> None:
        self.update_sources()
        self.alignment.advance(self.text, self.text[-1:], token)
        known, previous_end = self.own.extend(self.text, token, len(self.text))
        self.text += token
        for (key, match), source in zip(list(self.matches.items()), self.sources, strict=True):
            self.matches[key] = source.contexts.advance(match, token)
        self.matches[self.own] = known  # not the context that was just added
        if self.settings.draft.match_type == "learned":
            self.alignment.realign(previous_end, len(known))
        if self.generation is not None:
            extension = self.generation.contexts.extend(self.text_in_generation, token, None)
            self.matches[self.generation] = extension.known
            self.text_in_generation += token
            self.shared_text.count_token(self.generation)

    def commit(self, token: str) -> None:
        """Learn from a token that was generated, then add it to the text."""
        self.update_sources()
        self.update_predictor(token)
        self.follow_draft(token)
        self.add_to_text(token)

    def update_sources(self) -> None:
        """The match in a source that is new is found by the newest tokens."""
        listed: list[tuple[Generation | CorpusEntry | Contexts, Source]] = [
            (self.own, Source(self.own, Origin.OWN_TEXT))
        ]
        if self.settings.shared:
            current = self.shared_text.current(self.namespace)
            if current is not self.generation:
                self.generation, self.text_in_generation = current, ""
            listed += [(g, Source(g.contexts, Origin.SHARED_TEXT)) for g in self.namespace.generations]
        corpora = sorted(self.shared_text.corpora.items())
        listed += [(entry, Source(entry.corpus.contexts, Origin.CORPUS)) for _, entry in corpora]
        listed = listed[: Tuning.MAX_SOURCES]
        self.matches = {
            key: self.matches[key] if key in self.matches else self.rematch(source.contexts) for key, source in listed
        }
        self.sources = [source for _, source in listed]

    def rematch(self, contexts: Contexts) -> str:
        return contexts.longest_known(self.text[-Tuning.REMATCH_TOKENS :])

    def position(self) -> Position:
        return Position(self.sources, list(self.matches.values()), self.alignment, self.text)

    def update_predictor(self, token: str) -> None:
        """Every candidate up to the token that came is a trial."""
        is_predicted = False
        for rank, candidate in enumerate(candidates(self.position(), self.settings.draft.candidates)):
            hit = candidate.token == token
            self.predictor.learn(candidate.features, hit)
            is_predicted = hit and rank == 0
            if hit:
                break
        self.alignment.update_hit_rate(is_predicted)

    def follow_draft(self, token: str) -> None:
        drafted = self.drafted
        if drafted.is_left:
            return
        if drafted.certain:
            drafted.is_left = drafted.certain[0] != token
            drafted.certain = drafted.certain[1:]
            if drafted.is_left:
                drafted.nodes = []
            return
        for i, node in enumerate(drafted.nodes):
            if (node.parent, node.token) == (drafted.deepest_accepted, token):
                drafted.accepted.add(i)
                drafted.deepest_accepted = i
                return
        drafted.is_left = True

    def update_calibration(self) -> None:
        """Learn the outcome of the last draft, except where it is undecided."""
        drafted = self.drafted
        is_undecided: list[bool] = []
        for i, node in enumerate(drafted.nodes):
            may_come = node.parent == drafted.deepest_accepted or (node.parent >= 0 and is_undecided[node.parent])
            is_undecided.append(not drafted.is_left and i not in drafted.accepted and may_come)
            if not is_undecided[i]:
                before = 1.0 if node.parent < 0 else drafted.nodes[node.parent].survival
                weight = max(Tuning.MIN_OUTCOME_WEIGHT, 1 - node.survival / before)
                self.calibration.learn(node.survival, drafted.hit_rate, i in drafted.accepted, weight)

    def draft(self, limit: int, certain: str = "") -> list[DraftNode]:
        """After `update_calibration` and `update_sources`, and after those of all other requests of the step."""
        sources, matches, alignment, text = self.position()
        alignment = alignment.copy()
        for before, token in pairwise(text[-1:] + certain if text else "\0" + certain):
            matches = [source.contexts.advance(m, token) for source, m in zip(sources, matches, strict=True)]
            alignment.advance(text, before, token)
        position = Position(sources, matches, alignment, text)
        nodes = TreeBuilder(position, (text + certain)[-1:], self.predictor, self.settings.draft).build(limit)
        self.drafted = Drafted(certain, nodes, self.alignment.hit_rate_bucket)
        curve = self.calibration.curve(self.drafted.hit_rate)
        corrected: list[DraftNode] = []
        for node in nodes:
            survival = correct(node.survival, curve)
            if node.parent >= 0:
                survival = min(survival, corrected[node.parent].survival)
            corrected.append(node._replace(survival=survival))
        return corrected
