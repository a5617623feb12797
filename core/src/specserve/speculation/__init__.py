"""Guessing: the shape of drafts, the drafters behind their guards, and the planner that decides what is verified."""
