"""The base over HTTP: one application with /mcp, /query, /actions and operators' routes."""
