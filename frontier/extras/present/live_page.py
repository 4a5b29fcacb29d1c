"""Live page: the report of a run under way, served on loopback and drawn only when it is asked for.

The run is read as `frontier status` reads it: nothing in it is locked, written or waited for.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from markupsafe import escape

from frontier.core.model.errors import FrontierError, UsageError
from frontier.planning.standing import ENDS
from frontier.store.run_dir import RunDirectory

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")
"""What a browser may call this server: another name is another site's that points here."""
CORES = 4
"""With fewer cores a drawing takes time from the client that measures."""
_NICEST = 19
_EMPTY = "<!doctype html><meta charset=utf-8><title>frontier</title><p>{}</p><p>Load it again for what is new.</p>"


class LivePage:
    """The page of a run. `draw` makes it; it is drawn again once a trial was added or the sweep
    ended. What an error says is made `harmless`.
    """

    def __init__(self, run: Path, draw: Callable[[], bytes], harmless: Callable[[str], str] = str) -> None:
        self._run, self._draw, self._harmless = run, draw, harmless
        self._drawn: tuple[int, str] | None = None
        self._page = b""

    def html(self) -> bytes:
        """The page as of now; in words where there is none yet."""
        try:
            now = self._state()
            if now != self._drawn:
                self._page, self._drawn = self._draw(), now
        except (FrontierError, OSError) as error:
            return _EMPTY.format(escape(self._harmless(str(error)))).encode()
        return self._page

    def _state(self) -> tuple[int, str]:
        """The number of trials that were finished, and the last event of a sweep that ended."""
        lines = RunDirectory.read(self._run).journal_lines()
        done = sum(line["event"] == "trial_done" for line in lines)
        last = str(lines[-1]["event"]) if lines else ""
        return done, last if last in ENDS else ""


def serve(page: LivePage, port: int, ready: Callable[[str], None]) -> None:
    """Serve the page at the loopback `port`, 0 for a free one, until Ctrl-C, at the lowest
    priority. UsageError when the port is taken.
    """

    class PageHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name is the library's
            named = self.headers.get("Host", "").rpartition(":")[0] in _NAMES
            found = self.path == "/"
            body = page.html() if named and found else b""
            self.send_response({(True, True): 200, (True, False): 404}.get((named, found), 403))
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            with suppress(ConnectionError):  # the reader has gone
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the signature is the library's
            """Write nothing."""

    try:
        server = HTTPServer((HOST, port), PageHandler)
    except OSError as error:
        raise UsageError(
            f"cannot serve on {HOST}:{port}: {error.strerror}", "choose another port, or  --serve  alone for a free one"
        ) from error
    with server:
        os.nice(_NICEST)
        ready(f"http://{HOST}:{server.server_port}/")
        with suppress(KeyboardInterrupt):
            server.serve_forever()
