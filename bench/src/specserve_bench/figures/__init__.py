"""Figures of what was measured. Knows neither servers nor tables."""
