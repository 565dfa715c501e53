"""The page on which conflicts are settled."""
