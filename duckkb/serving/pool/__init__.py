"""Worker processes that answer for a server: one process of Python computes on one core, whatever it has of threads."""
