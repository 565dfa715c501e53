"""Merging by records: three versions of all parts and their merge (`sides`), and how it reaches files and index.

`merge` and `resolve` write it; `install` sets up git's driver, `verify` checks merges that others made,
`broken` finds what merged records break together.
"""
