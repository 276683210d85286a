"""The server of the viewer: access checks and addresses. By default only this machine can reach it, with a key."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from coterie.errors import ConfigError, CoterieError
from coterie.kernel.mistakes import check_split
from coterie.kernel.safe import one_line
from coterie.protocol.chat import RequestRefused
from coterie.protocol.http import body_of, check_host
from coterie.report.conversation import conversation
from coterie.report.looks import style
from coterie.view.pages import Missing, Page, Site, group_of, number_of, script
from coterie.view.shelf import Book
from coterie.view.table import EpisodeOptions, Sitting, Tables

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-cache",
}  # fmt: skip

FIELDS = 100
"""Fields that no form of the viewer has: millions of them would keep others waiting."""


class Viewer:
    """The server of the viewer, which answers a browser.

    Args:
        key: what its first address must have as `?key=`; a cookie keeps it.
        cookie: the name of that cookie. It differs by port, because all ports of a host share their cookies.
        anywhere: requests may come under any host's name.
        tell: is told of what goes wrong here, a line each.
    """

    def __init__(
        self, site: Site, key: str, cookie: str, *, anywhere: bool = False, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self.site = site
        self.tables = Tables()
        self._key, self._cookie, self._anywhere, self._tell = key, cookie, anywhere, tell
        self._reading, self._playing = Lock(), Lock()  # an episode that takes long keeps nobody from looking
        self._pass = blake2b(key.encode(errors="replace"), person=b"viewer", digest_size=24).hexdigest()
        """Value of the cookie: a hash of the key.
        Browsers send a cookie to every port of this host, and the key may be in use elsewhere."""
        self._files = {"style.css": ("text/css", style()), "view.js": ("text/javascript", script())}

    def app(self) -> Starlette:
        """Returns the application that a server runs."""
        return Starlette(
            routes=[
                Route("/static/{name}", self.file),
                Route("/{address:path}", self.look, methods=["GET"]),
                Route("/{address:path}", self.do, methods=["POST"]),
            ],
            exception_handlers={RequestRefused: self._refused, CoterieError: self._failed, Exception: self._bug},
        )

    def file(self, request: Request) -> Response:
        """Returns the style sheet or the script."""
        self._check(request)
        kind, text = self._files.get(request.path_params["name"], ("", ""))
        return Response(text, media_type=kind, headers=HEADERS) if kind else self._missing()

    def look(self, request: Request) -> Response:
        """Returns the page at an address."""
        if (key := request.query_params.get("key")) is not None:
            return self._enter(request, key)
        self._check(request)
        address = request.path_params["address"]
        if address.startswith("/"):  # which a browser would take for another host
            return self._missing()
        if address and not address.endswith("/"):
            return RedirectResponse(f"/{address}/", headers=HEADERS)
        with self._reading:
            try:
                text = self._played(address, request.query_params) or self.site.get(address, request.query_params)
            except Missing:
                return self._missing(address)
        stamp = f'"{blake2b(text.encode(errors="replace"), digest_size=12).hexdigest()}"'
        headers = {**HEADERS, "ETag": stamp}
        if request.headers.get("if-none-match") == stamp:
            return Response(status_code=304, headers=headers)
        return _html(text, headers=headers)

    async def do(self, request: Request) -> Response:
        """Does what a form asks for: an episode is begun, answered or forked, or two are played side by side."""
        self._check(request)
        if request.headers.get("origin") != f"{request.url.scheme}://{request.headers.get('host')}":
            raise RequestRefused("a form of another page's is not answered", status=403, code="origin")
        sent = (await body_of(request)).decode(errors="replace")
        if sent.count("&") >= FIELDS:
            raise RequestRefused(f"a form of ours has fewer than {FIELDS} fields", status=413, code="form")
        form = dict(parse_qsl(sent, keep_blank_values=True))
        said = {key: text.replace("\r\n", "\n") for key, text in form.items()}
        return await run_in_threadpool(self._done, request.path_params["address"], said)

    def _done(self, address: str, said: Mapping[str, str]) -> Response:
        with self._playing:
            name, *rest = [part for part in address.split("/") if part] or [""]
            if name == "compare" and not rest:
                return self._compare(said)
            book = self.site.shelf.book(name)
            return (self._done_to(book, rest, said) if book else None) or self._missing(address)

    def _done_to(self, book: Book, rest: Sequence[str], said: Mapping[str, str]) -> Response | None:
        """Does what a form asks of a run; None: there is no such thing. rest: of the address."""
        match rest:
            case ["play"]:
                return _to(self.tables.begin(_wanted(book, said)), book.name)
            case ["play", sitting] if mine := self._of(book, sitting):
                if "fork" in said:
                    return _to(self.tables.fork(mine, _whole(said["fork"], "decision")), book.name)
                texts = {key.removeprefix("say "): text for key, text in said.items() if key.startswith("say ")}
                mine.answer(_whole(said.get("point", ""), "decision"), texts)
                return _to(mine, book.name)
            case ["roles"]:
                self.site.measured.begin(book.identity, _whole(said.get("tasks", ""), "number of tasks"))
                return RedirectResponse(f"/{book.name}/roles/#measured", 303, headers=HEADERS)
            case ["rollouts", step, task, number]:
                return self._asked(book, (step, task, number), said)
            case _:
                return None

    def _played(self, address: str, query: Mapping[str, str]) -> str | None:
        """Returns a page of played episodes; None: the address is none of theirs."""
        match [part for part in address.split("/") if part]:
            case [name, "play"] if book := self.site.shelf.book(name):
                content = {"steps": book.run.checkpoints.steps(), "roles": list(book.roles)}
                return self.site.show(address, Page("play.html", "Play", content, book=book, tab="play/"))
            case [name, "play", sitting] if (book := self.site.shelf.book(name)) and (mine := self._of(book, sitting)):
                return self.site.show(address, self._sitting(book, mine))
            case ["compare"]:
                return self.site.show(address, self._compared(query))
            case _:
                return None

    def _asked(self, book: Book, place: tuple[str, str, str], said: Mapping[str, str]) -> Response | None:
        """Has a checkpoint compute its log-probabilities of a group's replies; None: there is no such group."""
        at = _whole(said.get("at", ""), "step")
        with self._reading:
            try:
                step, task, number = map(number_of, place)
                group = group_of(book, step, task, number)
            except Missing:
                return None
        self.site.measured.ask((book.identity, step, task, number, at), group)
        return RedirectResponse(f"/{book.name}/rollouts/{step}/{task}/{number}/?at={at}", 303, headers=HEADERS)

    def _sitting(self, book: Book, mine: Sitting) -> Page:
        """Returns the page of an episode, beside the one that it was forked from."""
        before = self.tables.get(mine.before[0]) if mine.before else None
        content = {
            "mine": mine, "said": list(conversation(mine.log)),
            "other": before, "other_said": list(conversation(before.log)) if before else [],
        }  # fmt: skip
        return Page(
            "sitting.html", f"{mine.wanted.split} task {mine.wanted.task}", content, [("Play", "../")], book, "play/"
        )

    def _of(self, book: Book, sitting: str) -> Sitting | None:
        """Returns a sitting of a run; None: the run has no such one."""
        found = self.tables.get(sitting)
        return found if found and found.wanted.folder == book.folder else None

    def _compare(self, said: Mapping[str, str]) -> Response:
        """Plays two teams on one task. Raises: ConfigError: a run is not there, or they play different environments."""
        books = [self._book(said.get(side, "")) for side in "ab"]
        worlds = {book.tables["environment"]["name"] for book in books}
        if len(worlds) > 1:
            raise ConfigError(f"they have no task in common: one plays {', the other '.join(sorted(map(str, worlds)))}")
        shared = {key: said.get(key, "") for key in ("split", "task")}
        wanted = [
            _wanted(book, shared | {"step": said.get(f"step_{side}", "")})
            for side, book in zip("ab", books, strict=True)
        ]
        one, two = (self.tables.begin(each) for each in wanted)
        again = {key: said.get(key, "") for key in ("a", "b", "step_a", "step_b", "split", "task")}
        return RedirectResponse(f"/compare/?{urlencode({**again, 'one': one.id, 'two': two.id})}", 303, headers=HEADERS)

    def _book(self, name: str) -> Book:
        book = self.site.shelf.book(name)
        if book is None:
            raise ConfigError(f"there is no run '{name:.80}' here")
        return book

    def _compared(self, query: Mapping[str, str]) -> Page:
        """Returns the page with two episodes beside each other, once they are played."""
        sides: list[tuple[Book, Sitting, Any]] = []
        for side, which in zip("ab", ("one", "two"), strict=True):
            book = self.site.shelf.book(query.get(side, ""))
            if book is not None and (mine := self._of(book, query.get(which, ""))):
                sides.append((book, mine, list(conversation(mine.log))))
        return Page("compare.html", "Side by side", {"books": self.site.shelf.books(), "query": query, "sides": sides})

    def _enter(self, request: Request, key: str) -> Response:
        """Has a browser that knows the key keep a cookie in its place."""
        self._check_name(request)
        if not hmac.compare_digest(key.encode(errors="replace"), self._key.encode()):
            raise RequestRefused(
                "the key is wrong: open the address that `coterie view` printed", status=401, code="key"
            )
        answer = RedirectResponse(f"/{request.url.path.lstrip('/')}", status_code=303, headers=HEADERS)
        answer.set_cookie(self._cookie, self._pass, httponly=True, samesite="strict", path="/")
        return answer

    def _check(self, request: Request) -> None:
        """Raises Refused if a request lacks the cookie, or comes under another host's name."""
        self._check_name(request)
        sent = request.cookies.get(self._cookie, "")
        if not hmac.compare_digest(sent.encode(errors="replace"), self._pass.encode()):
            raise RequestRefused("open the address that `coterie view` printed: it has the key", status=401, code="key")

    def _check_name(self, request: Request) -> None:
        if not self._anywhere:
            check_host(request)

    def _missing(self, address: str = "") -> Response:
        return self._error(address, "Nothing is here", "This page is not there, or what it showed is gone.", 404)

    def _error(self, address: str, title: str, why: str, status: int) -> Response:
        text = self.site.show(address, Page("error.html", title, {"why": why}))
        return _html(text, status, headers=HEADERS)

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestRefused)
        return PlainTextResponse(f"coterie: {error}\n", error.status, headers=HEADERS)

    async def _failed(self, request: Request, error: Exception) -> Response:
        return self._error(request.path_params.get("address", ""), "This cannot be shown", one_line(str(error)), 409)

    async def _bug(self, request: Request, error: Exception) -> Response:
        self._tell(one_line(f"{type(error).__name__}: {error}"))
        return self._error(request.path_params.get("address", ""), "It failed here", "The terminal says why.", 500)


def _wanted(book: Book, said: Mapping[str, str]) -> EpisodeOptions:
    """Returns the episode that a form wants played. Raises: ConfigError: that cannot be."""
    split = said.get("split") or "validation"
    check_split(split, "split")
    step, seat = said.get("step", ""), said.get("seat", "")
    return EpisodeOptions(
        book.folder, _whole(step, "step") if step else None, split, _whole(said.get("task") or "0", "task"), seat,  # pyright: ignore[reportArgumentType]
        0.0 if said.get("how", "greedy") == "greedy" else 1.0,
    )  # fmt: skip


def _whole(text: str, what: str) -> int:
    """Returns a number from a form. Raises: ConfigError: it is none."""
    if not text.isdecimal() or len(text) > 9:
        raise ConfigError(f"{text!r:.40} is no {what}; write a whole number, of nine digits at most")
    return int(text)


def _to(sitting: Sitting, name: str) -> Response:
    return RedirectResponse(f"/{name}/play/{sitting.id}/", status_code=303, headers=HEADERS)


def _html(text: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(text.encode(errors="replace"), status, headers=headers, media_type="text/html")
