"""Two embedding models of one base, side by side."""
