"""The commands `specserve plugins` and `specserve doctor`."""
