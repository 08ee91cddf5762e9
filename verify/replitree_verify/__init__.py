"""The checker: the stages and procedures that ship in every order (explorer), and in many random ones (simulator).

Neither has a model of the protocol of its own: both run the generators of `replitree.protocol`.

Reading path:  `process.seat_threads` (which threads there are), `world.kernel` (procedures as values), `outcomes.branches`
(every way in which an effect ends), `engine.steps` and `engine.space` (moves of a state), `engine.explore`;
`rules.invariants`, `mutants`, `models`; then `simulation` and `traces.conversation`.  `registry` is what the command line
calls, with `small_models` for the models that have a search of their own.
"""
