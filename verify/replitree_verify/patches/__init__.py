"""Mutants as patches: what each breaks is a diff of the production file.

Every folder has the mutants of one room of models, a file each; `patch` reads them and applies them to the running process.

Imports: nothing of the checker.

Changes: with the lines that a patch changes: one that does not apply any more fails its test.
"""
