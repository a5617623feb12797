"""Serves a plan's requests on the engine under test: step by step, or through the asyncio front."""
