"""What changed between two versions of a knowledge base, as records: found (`sides`, `compare`), then shown."""
