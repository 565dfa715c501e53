"""Telemetry for operators of a server: measures, a log of its requests, spans."""
