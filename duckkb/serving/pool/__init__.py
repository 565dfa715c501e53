"""Worker processes that answer for a server: one Python process computes on one core, however many threads it has."""
