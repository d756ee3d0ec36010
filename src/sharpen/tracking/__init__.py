"""A run's event log, and the trackers that are told the same numbers."""
