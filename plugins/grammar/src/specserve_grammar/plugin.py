"""grammar's hooks. There is one instance per engine: its drafter, processor and check share compiled grammars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve.api import hookimpl
from specserve.api.files import HfTokenizer, locate_model, locate_tokenizer
from specserve_grammar.answers import answer_check
from specserve_grammar.drafter import GrammarDrafter
from specserve_grammar.grammars import Grammars, load_tokenizer
from specserve_grammar.options import GrammarOptions
from specserve_grammar.processor import GrammarProcessor

if TYPE_CHECKING:
    from specserve.api import AdaptableModel, AnswerCheck, EngineConfig, GenerateRequest
    from specserve_grammar.validator import Validator


@dataclass(slots=True, frozen=True)
class Parts:
    """What the drafter, the processor and the check share."""

    grammars: Grammars
    ends: frozenset[int]


def make_validator(options: GrammarOptions) -> Validator | None:
    if options.unsupported != "validate":
        return None
    from specserve_grammar.validator import Validator  # its library is an extra

    return Validator()


class GrammarPlugin:
    """Masks for structured output, and drafts of what they force."""

    def __init__(self) -> None:
        self.parts: Parts | None = None
        """Set by `make_drafter`, which start-up calls before the hooks that use it."""

    @hookimpl
    def plugin_options(self) -> type[GrammarOptions]:
        return GrammarOptions

    @hookimpl
    def make_drafter(
        self, model: AdaptableModel, config: EngineConfig, options: GrammarOptions
    ) -> GrammarDrafter | None:
        path = locate_tokenizer(config)
        ends = HfTokenizer.from_dir(path, model=locate_model(config.model)).eos_token_ids
        tokenizer = load_tokenizer(path, model.vocab_size, ends)
        self.parts = Parts(Grammars(tokenizer, options, make_validator(options)), frozenset(ends))
        return GrammarDrafter(tokenizer, options.max_draft_tokens) if options.forced_drafts else None

    @hookimpl
    def logits_processors(self) -> list[GrammarProcessor]:
        assert self.parts is not None
        return [GrammarProcessor(self.parts.grammars, self.parts.ends)]

    @hookimpl
    def check_request(self, request: GenerateRequest) -> None:
        wanted = request.params.structured_output
        if wanted is not None:
            assert self.parts is not None
            self.parts.grammars.find(wanted)

    @hookimpl
    def check_answer(self, request: GenerateRequest, text: str) -> AnswerCheck | None:
        assert self.parts is not None
        return answer_check(self.parts.grammars, request.params, text)
