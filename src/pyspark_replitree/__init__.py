"""What Spark finds by itself: it imports every module named ``pyspark_*`` and takes its `DefaultSource`.

So ``format("replitree")`` needs no registration.  Nothing else happens on import, and little is imported.
"""

from replitree.spark.source import ReplitreeSource as DefaultSource

__all__ = ["DefaultSource"]
