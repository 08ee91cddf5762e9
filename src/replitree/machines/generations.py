"""Generations that another service hands out: a sequencer, so that no two candidates of a tablet ever stand for the same one.

Nothing here is needed for safety: a number that is handed out twice, as by a sequencer that was set back to an old copy, makes
one leader at most, for a fence has an issuer.  A candidate that takes its generations from a sequencer never chooses one
itself.

Source: YDB's Hive, which counts a tablet's generations and gives each to one node (``spec/tablet.md`` 2.1).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from replitree.errors import Unavailable
from replitree.machines.apis import COUNT_MAX

PATIENCE_S = 2.0
"""How long one process of the sequencer is waited for."""


class Generations:
    """The generations of one tablet, from a sequencer.

    Parameters
    ----------
    urls
        Addresses of the processes that serve the sequencer; the one that leads answers.
    group, tablet
        Whose generations: the name of the sequence.
    """

    def __init__(self, urls: Sequence[str], group: str, tablet: int) -> None:
        self._urls = tuple(urls)
        self._path = f"/sequences/generations-{group}-{tablet}"

    def take(self, above: int) -> int:
        """Return a generation that no other candidate was given.

        Parameters
        ----------
        above
            A generation that has been already: numbers up to it are outdated, and passed over.

        Raises
        ------
        Unavailable
            No process gave one; a number on its way is lost, and given to no candidate.
        """
        last = self._next(1)
        # All that are known to be used at once: one by one would take a request for each.
        while last <= above:
            last = self._next(min(above - last + 1, COUNT_MAX))
        return last

    def _next(self, count: int) -> int:
        problems = list[str]()
        for url in self._urls:
            problem: object
            try:
                address = urlsplit(url)
                with closing(HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE_S)) as connection:
                    connection.request("POST", self._path, json.dumps({"count": count}))
                    response = connection.getresponse()
                    said = json.loads(response.read())
                if response.status == HTTPStatus.OK:
                    return int(said["last"])
                problem = said.get("message", response.status)
            except (OSError, HTTPException, ValueError, KeyError) as error:
                problem = error
            # Whatever is wrong with this process, another one may lead the sequencer.
            problems.append(f"{url}: {problem}")
        raise Unavailable(
            f"no sequencer gave a generation ({'; '.join(problems)}): start one with `replitree tablet serve sequencer`,"
            " or name its address with --generations"
        )
