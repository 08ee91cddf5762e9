"""The rules of the project, as tests: sizes, layers, purity, documents, packaging."""
