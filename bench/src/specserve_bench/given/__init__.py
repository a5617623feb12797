"""What a command line gives: numbers, and drafters to compare."""
