"""Tablets that are broken on purpose: what each replaces, and which invariant must notice; `catalog` has them by name.

`mutant` says what a mutant is; `equivalent` has the changes that change nothing.

Imports: `tablets.model`, `tablets.drafts` and `tablets.members`.

Changes: with each invariant, and with `docs/tablet-mutations.md`; a mutant that is caught no more is a finding.
"""
