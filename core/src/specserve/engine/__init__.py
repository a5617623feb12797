"""The step loop, its stages in order, and what builds them from a configuration."""
