"""Fuzzing: everything that reads bytes which this process did not write is fed with damaged, spliced and invented ones.

A *target* (`targets`) reads one input; it may accept it, or refuse it with one of a few documented errors.  Anything else is a
*finding*: another exception, a crash of the process, too much memory, too much time.  `mutate` makes the inputs from the corpus
under ``corpus/<target>``; `pool` runs them in child processes (`child`); `run` is the command.

The files of the corpus are named ``accepted-…`` or ``refused-…``: that outcome is checked before the mutations begin, so every
finding that was fixed stays fixed.  `seeds` writes the files that the encoders of this version make.
"""
