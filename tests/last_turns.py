"""The end of an event loop that a test has started."""

from __future__ import annotations

import asyncio

TURNS = 5
"""Turns in which a connection that was accepted or closed a moment ago begins or ends."""


async def last_turns() -> None:
    """Let a loop that is about to end hear of connections made or closed a moment ago; end all its other tasks."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
    waiting = asyncio.all_tasks() - {asyncio.current_task()}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for _ in range(TURNS):
        await asyncio.sleep(0)
