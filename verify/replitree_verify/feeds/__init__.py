"""The checker of the change feed: what replicas keep of it, and what a reader gets from each of them in every state.

Imports: `engine`, `patches`, and of the product `protocol` and `replica`: the code that keeps and gives the feed runs here.

Changes: a model is a declaration in `model`; what must hold is in `search`, each with mutants below `patches/feeds`.
"""
