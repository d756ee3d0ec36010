"""The page of a run while it trains, served on this machine alone.

Two things are served and no file: `/`, the page, made anew when the run has changed, and `/version`, by which the page sees that. A browser
may be made to send requests here by any site it visits; so only GET is answered, only under a loopback name (a site whose name is made to
point at 127.0.0.1 sends its own name, "DNS rebinding"), and no header lets another site read the answer.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sharpen.errors import RunError, SharpenError
from sharpen.reports.html import Maker
from sharpen.training.run_folder import RunFolder

ADDRESS = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost", "[::1]")
"""The names of this machine in a Host header, with or without a port."""
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


class Watched:
    """A run, and its page as it was when the run last changed."""

    def __init__(self, run: Path, others: Sequence[Path] = ()) -> None:
        self.paths = [run, *others]
        self._maker, self._lock = Maker(run, others), threading.Lock()
        self._made: tuple[str, str] | None = None

    def version(self) -> str:
        """Sixteen hexadecimal digits that change whenever the files change that the page is made from."""
        seen = hashlib.blake2b(digest_size=8)
        for path in self.paths:
            folder = RunFolder(path)
            files = [folder.recipe, folder.events, folder.timings, folder.environment, *sorted(folder.evaluation.glob("*.json"))]
            files += sorted(folder.checkpoints.glob("step-*"))[-1:]  # with the first one there is a tokenizer
            for file in files:
                try:
                    stat = file.stat()
                except FileNotFoundError:  # replaced or pruned in this moment; the next look sees what came of it
                    continue
                seen.update(f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}\0".encode())
        return seen.hexdigest()

    def page(self) -> tuple[str, str]:
        """The page's version and its HTML; made by one thread at a time, once a version."""
        with self._lock:
            version = self.version()
            if self._made is None or self._made[0] != version:
                self._made = version, self._maker.make(live=version).html
            return self._made


class Server(ThreadingHTTPServer):
    """Serves a run's page on the loopback address.

    Args:
        watched: the run.
        port: 0 picks a free one.

    Raises:
        RunError: the port is taken, or not for us.
    """

    daemon_threads = True

    def __init__(self, watched: Watched, port: int) -> None:
        self.watched = watched
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            raise RunError(
                f"port {port} of {ADDRESS}: cannot be used: {error.strerror or error}.",
                fix="Choose another one by --port; 0 picks one that is free.",
            ) from error

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.server_port}/"


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    server_version, sys_version = "sharpen", ""

    def parse_request(self) -> bool:
        """Refuse at once what is not GET or comes under another name."""
        if not super().parse_request():
            return False
        if self.command != "GET":
            self._answer(405, "text/plain", "Only GET.\n", {"Allow": "GET"})
        elif not loopback(self.headers.get("Host")):
            self._answer(403, "text/plain", "This page is served under a loopback name only, such as 127.0.0.1 or localhost.\n")
        else:
            return True
        self.close_connection = True
        return False

    def do_GET(self) -> None:
        """The page, or its version."""
        try:
            if self.path == "/version":
                self._answer(200, "text/plain", self.server.watched.version())
            elif self.path == "/":
                version, html = self.server.watched.page()
                self._answer(200, "text/html", html, {"X-Version": version})
            else:
                self._answer(404, "text/plain", "There is / and /version.\n")
        except SharpenError as error:
            self._answer(500, "text/plain", f"{error}\n")
        except (BrokenPipeError, ConnectionResetError):  # the browser left
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the page asks each second."""

    def _answer(self, status: int, kind: str, text: str, more: dict[str, str] | None = None) -> None:
        body = text.encode()
        self.send_response(status)
        for name, value in {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body)), **HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def loopback(host: str | None) -> bool:
    """Whether a Host header names this machine: a loopback name, with any port (a tunnel has its own) or none."""
    if host is None:
        return False
    name, colon, port = host.lower().rpartition(":")
    if not colon or port.endswith("]"):
        return host.lower() in NAMES
    return name in NAMES and port.isascii() and port.isdigit()
