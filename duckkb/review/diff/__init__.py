"""What changed between two versions of a knowledge base, as records: found (`versions`, `compare`), then shown."""
