"""`python -m specserve generate` of the core alone, and what a full command line makes of the same parts."""
