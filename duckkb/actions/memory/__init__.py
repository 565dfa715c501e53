"""The memories of agents: put, search, history, counts."""
