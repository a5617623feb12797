"""`specserve bench model`: what a step of a model takes at the least on this machine, and what bounds it."""
