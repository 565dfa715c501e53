"""Merging by records: three versions of all parts and what they make together (`sides`), and how that comes into the
files and the index (`merge`, `resolve`); git's driver (`install`), a look at merges that others made (`verify`), and what
merged records break together (`broken`)."""
