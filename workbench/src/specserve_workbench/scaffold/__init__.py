"""The files of a new plugin, and what writes them: `specserve plugins new`."""
