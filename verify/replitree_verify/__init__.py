"""The checker: the production procedures in every order (explorer), and in many random ones (simulator).

Neither has a model of the protocol of its own: both run the generators of `protocol/`, and the thin glue of `life`.

Reading path:  `life` (how threads string procedures together), `kernel` (procedures as values), `branches` (every way in
which an effect ends), `steps` and `space` (moves of a state), `explore`; `invariants`, `mutants`, `models`; then `simulate`
and `conversation`.  `packed` is apart: published models, without our procedures.  `registry` is what the command line calls.
"""
