"""duckkb: a git-backed knowledge engine."""
