"""Corpora: reading and tokenizing documents for the index, and the routes that add and remove them."""
