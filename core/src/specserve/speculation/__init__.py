"""What the engine drafts and verifies where no plugin decides it."""
