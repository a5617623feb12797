"""Corpora: files and documents that become automata of the index, and their routes."""
