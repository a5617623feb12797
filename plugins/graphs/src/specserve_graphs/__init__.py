"""Recorded forward passes: buckets, memory at addresses that stay, recording, replay, eligibility."""
