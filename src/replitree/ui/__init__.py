"""The page: a cluster in the browser, read only.

May import `client` and what lies below it; nothing but `cli` imports it.  Change it freely: nothing here is stored.
What the browser gets lies in ``static/``, with the vendored libraries and their licences in ``static/vendor/``.
"""
