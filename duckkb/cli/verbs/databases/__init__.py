"""Verbs that ask other databases."""
