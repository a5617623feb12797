"""The n-gram index once more, in Python and plainly: the oracle of the native one.

No automata: a dictionary holds every context that occurs, so short texts only. Rates, weights and curves are the same
doubles. Left out: prompts of more than 16,384 tokens, which the native index enters over several calls.
"""
