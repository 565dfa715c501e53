"""What agents remember: put, searched, looked back at, counted."""
