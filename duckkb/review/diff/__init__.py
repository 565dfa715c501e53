"""Differences between two versions of a knowledge base, as records: computed (`versions`, `compare`), then shown."""
