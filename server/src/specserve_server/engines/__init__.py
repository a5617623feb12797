"""Engines as the routes are given them: in this process, or in one of its own."""
