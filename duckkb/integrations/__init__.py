"""Retrievers over a knowledge base for `langchain` and `llamaindex`. Each needs the extra of its name."""
