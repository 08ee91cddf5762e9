"""What the explorer's world is made of, as values: model, disk, memory, and what coordination has and had.

`kernel` numbers the places where a procedure can stand, so that a thread is a small integer.

Imports: nothing of the checker.

Changes: with every pinned count; a value must have one form, or two equal states look different.
"""
