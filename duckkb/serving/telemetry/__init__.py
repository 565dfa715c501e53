"""What operators see of a server: measures, a log of its requests, spans."""
