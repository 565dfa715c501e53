"""Actions on the models of a base: list, compare, migrate."""
