"""Commits of uploads: each is made once, and every request for it gets the same answer.

A client whose answer was lost asks again, perhaps while the first try is still reading files.  The second request waits for the
first one's end.  What failed is forgotten, so that it can be tried again; so is an unknown outcome, which is then looked up.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any

REMEMBERED_MAX = 1024
"""Commits whose answers are remembered."""

Key = tuple[str, str]
Answer = dict[str, object]


class UploadCommits:
    """The commits of a server's uploads; to be used on one loop."""

    def __init__(self) -> None:
        self._tasks: OrderedDict[Key, asyncio.Task[Answer]] = OrderedDict()

    async def once(self, key: Key, commit: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Return the answer to a commit; the first request for it begins it.

        Parameters
        ----------
        key
            What is committed.
        commit
            Begins to commit it.
        """
        task = self._tasks.get(key)

        def ended(done: asyncio.Task[Answer]) -> None:
            if done.cancelled() or done.exception() is not None:
                # What failed can be tried again.
                del self._tasks[key]
                return
            self._tasks.move_to_end(key)
            finished = [each for each, known in self._tasks.items() if known.done()]
            for old in finished[: max(0, len(finished) - REMEMBERED_MAX)]:
                del self._tasks[old]

        if task is None:
            task = self._tasks[key] = asyncio.get_running_loop().create_task(commit())
            task.add_done_callback(ended)
        # The commit goes on when its client does not wait any longer: a repeated request gets its answer.
        return await asyncio.shield(task)
