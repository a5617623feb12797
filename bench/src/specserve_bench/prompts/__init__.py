"""What is asked: built-in texts, random ones, and those of files."""
