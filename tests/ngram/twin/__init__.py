"""A reference implementation of the native n-gram index, in plain Python.

What follows a context is counted over the tokens of the texts, without an automaton, so texts must be short. Constants
and priors come from the native module (`Tuning`). Left out: prompts of more than 8,192 tokens, which the native index
adds to its text over several calls.
"""
