"""What all pages have: one HTML file with everything in it, its style, and the parts that its script is made of."""
