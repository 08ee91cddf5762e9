"""Models of merges in an object store: one replica makes a result for all, and sessions end at the wrong moment."""
