"""The bridge: what our procedures do to coordination is what a packed model can do.

Everything that replicas share is in coordination, and it changes by commits and by the ends of sessions only.  So a run of the
procedures, explored, simulated or recorded, is a sequence of *outlines* (`outline`): what a mapping looks at in coordination.
A *mapping* (`mapping`) says which state of a packed model an outline stands for.  A run maps onto the model when every two
outlines that follow each other stand for the same state, or for states between which the model has a way.

So the packed model is one of these procedures: what the search shows of all its states holds of what they do to coordination,
for as many replicas and records as the search goes through.

Reading path:  `outline`, `cleaning` (a mapping), `mapping` (the search for a way), `explored`, `simulated` and `recorded`
(where outlines come from), `report` (all of it by name).
"""
