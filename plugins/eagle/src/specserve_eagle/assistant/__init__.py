"""Assistants of Gemma 4: their layers attend to the target's keys and values, and have none of their own."""
