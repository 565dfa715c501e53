"""Retrievers of other frameworks over a knowledge base: `langchain`, `llamaindex`. Each needs the extra of its
name.
"""
