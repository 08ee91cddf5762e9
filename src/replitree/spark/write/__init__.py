"""Writing with Spark: tasks that stage rows, and the one commit of their driver.

Imports: `session` to `read`.

Changes: freely; a job that fails leaves nothing.
"""
