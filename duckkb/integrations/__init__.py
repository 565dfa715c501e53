"""A knowledge base as the retriever of other frameworks: `langchain`, `llamaindex`. Each needs the extra of its name."""
