"""Hidden states and logits of whole texts, by a model as it is served: for programs that learn from one."""

from specserve.engine.text_reader import TextReader, TextStates

__all__ = ["TextReader", "TextStates"]
