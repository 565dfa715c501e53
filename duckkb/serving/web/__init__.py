"""The reading room: the pages of a served base, for people with a browser. What they show are the answers of actions."""
