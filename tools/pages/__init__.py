"""The documentation site: `make docs` writes its pages into `build/pages`, and Zensical makes `build/site` of them.

The pages of `docs/` are copied.  The pages of the reference and of the results are generated here, from the code and from the
files of `docs/results`; no page of them is committed, so none can be out of date.  `zensical.toml` has the navigation: one line
for each page.

Changes: freely.
"""
