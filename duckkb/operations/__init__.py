"""The use cases: every verb once."""
