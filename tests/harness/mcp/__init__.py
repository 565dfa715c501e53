"""What the official suite of MCP asks of a server, for the tests alone: its fixtures (`fixtures`), and which of its scenarios do
not concern what duckkb serves (`expected_failures.yml`)."""
