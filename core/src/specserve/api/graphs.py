"""The recorder that needs no device: its replays call the recorded function."""

from specserve.graphs.reference_recorder import ReferenceRecorder, ReferenceRecording

__all__ = ["ReferenceRecorder", "ReferenceRecording"]
