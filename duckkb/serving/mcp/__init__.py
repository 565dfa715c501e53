"""MCP: the actions of the registry as tools, over stdin and stdout or streamable HTTP."""
