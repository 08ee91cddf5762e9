"""Target: the HTTP server of the page, over a real connection; an input is what a stranger, or a page of another site, sends.

The cookie is put in where an input has its place-holder.  A finding is: a 500, a log line of a defect, the cluster's token in
an answer, an answer without the headers that keep browsers safe, and a server that does not answer afterwards.

Target: the answer of a process whose address the page was told to be a candidate's.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replitree.ui.door import HEADERS
from replitree.ui.extras import Extras
from replitree.ui.tablets import read_status
from tests.fuzz.mutate import Shape
from tests.fuzz.on_http import ALIVE_EVERY, ANSWER_S_MAX, PLACE, Kept, exchange, status_in
from tests.fuzz.target import Read, Target, reads
from tests.replica.inprocess import TOKEN, InProcessCluster
from tests.ui.pages import KEY, page_of

POLICY = f"Content-Security-Policy: {HEADERS['Content-Security-Policy']}".encode()


@contextmanager
def _page(folder: Path) -> Iterator[Read]:
    cluster = InProcessCluster(folder, 1, clean_log_delay_s=3600.0, check_interval_s=0.0)
    cluster.create_table()
    kept, sent = Kept(), [0]
    logging.getLogger().addHandler(kept)
    extras = Extras((str(folder), "http://127.0.0.1:1"), folder / "trace.json")
    (folder / "trace.json").write_text('{"trace": []}', encoding="utf-8")
    with cluster.connect() as connection, page_of(connection, extras) as page:
        address, cookie = ("127.0.0.1", page.port), page.enter().cookie.encode()
        alive = b"GET /api/overview HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: " + cookie + b"\r\n\r\n"
        assert status_in(exchange(address, alive, ANSWER_S_MAX)) == 200
        # The first answers load modules, which may take longer than an input is waited for.
        for path in ("aside", "waits", "history"):
            page.ask(f"/api/{path}?table=t")

        def one(data: bytes) -> bool:
            answer = exchange(address, data.replace(PLACE, cookie))
            assert re.search(rb"HTTP/1.[01] 500", answer) is None, answer[:600]
            logged = "".join(kept.lines)
            kept.lines.clear()
            for word in ("defect", "Traceback", TOKEN, KEY):
                assert word not in logged, logged[:1500]
            status = status_in(answer)
            # aiohttp itself refuses with 400 what is not HTTP.
            assert status in (0, 400) or POLICY in answer, answer[:600]
            assert TOKEN.encode() not in answer
            sent[0] += 1
            if sent[0] % ALIVE_EVERY == 0:
                assert status_in(exchange(address, alive, ANSWER_S_MAX)) == 200, "the page does not answer"
            return 200 <= status < 300

        yield one


def _candidate(data: bytes) -> bool:
    """Read what a process at the address of a candidate answers."""
    return not read_status("http://127.0.0.1:1", 200, data).problem


TARGETS = (
    Target("page-head", _page, (), Shape.LINES, share=40, cpu_s_max=20.0),
    Target("page-candidate", reads(_candidate), (), Shape.JSON, share=200),
)
