"""Tags around the answer of a model that reasons, as Granite 3 writes them: `<response>...</response>`.

They are dropped at the answer's ends only: within it, such a tag is text.
"""

from __future__ import annotations

from specserve.text.stop_strings import partial_match_length


class AnswerTags:
    """`opening`: the tag in front; "" for answers without tags, which pass as they are."""

    def __init__(self, opening: str) -> None:
        self.opening = opening
        self.closing = opening.replace("<", "</")
        self.held = ""
        self.has_begun = self.is_bare = False

    def push(self, text: str, *, final: bool) -> str:
        if not self.opening:
            return text
        self.held += text
        if not self.has_begun and not self.begin(final):
            return ""
        if self.is_bare:  # the model did not open one
            shown, self.held = self.held, ""
            return shown
        return self.inside(final)

    def begin(self, final: bool) -> bool:
        begun = self.held.lstrip()
        if self.opening.startswith(begun) and begun != self.opening and not final:
            return False
        self.has_begun = True
        if begun.startswith(self.opening):
            self.held = begun[len(self.opening) :]
        else:
            self.is_bare = True
        return True

    def inside(self, final: bool) -> str:
        """All but what may be the tag at the end, and blanks behind it."""
        text = self.held.rstrip()
        keep = len(self.closing) if text.endswith(self.closing) else partial_match_length((self.closing,), text)
        shown = len(text) - keep if keep else len(self.held)
        if final and keep < len(self.closing):
            shown = len(self.held)
        found, self.held = self.held[:shown], self.held[shown:]
        return found
