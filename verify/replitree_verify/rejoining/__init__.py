"""Replicas that are dropped and join again under their names, while a process of the earlier one is still at work."""
