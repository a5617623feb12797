"""The attention backend of the core, and how well a backend fits a configuration."""
