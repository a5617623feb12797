"""What plugin authors test with: toy checkpoints, fakes and the conformance kit."""
