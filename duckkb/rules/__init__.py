"""Integrity: every rule that records and their files keep, once. Writes, `check`, `check --since` and merges ask them all.

A rule is a function of a view of the base and a type that yields findings, and a line in the `RULES` of its module; `catalogue` has them all.
"""
