"""Every way in which one effect can end: the explorer's interpreter of effects, step by step.

`branches` has the outcomes of an effect on coordination, `local` those inside a process; `steps` joins the steps that
need no interleaving (`reduction`).

Imports: `rules`, `probes`, `process` and `world`.

Changes: with `replica/perform`, which must mean the same by an effect, and with every pinned count.
"""
