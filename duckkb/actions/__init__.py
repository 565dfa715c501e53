"""Every verb once."""
