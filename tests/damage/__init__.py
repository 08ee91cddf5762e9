"""Random damage to every kind of file that a replica keeps; no reader may show a wrong row.

`python -m tests.damage.run --damages 10000 --seed 1` runs it at length and prints what became of each kind of damage.
"""
