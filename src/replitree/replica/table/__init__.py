"""One table on one replica: activation, the threads that pull, execute, lead and clean, and what it reports.

Imports: every room but `http`.

Changes: with the explorer and the simulator, whose threads must stay the same.
"""
