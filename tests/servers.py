"""A server of the tests' own that speaks OpenAI's protocol."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answering = Callable[[dict, int], Any]
"""(body of a request, its number) -> a text, a status, (status, headers, content), seconds to wait, or bytes."""


class FakeServer:
    """url: for a config. asked: every request's body, in order. headers: of the last one."""

    def __init__(self, url: str, asked: list[dict]) -> None:
        self.url = url
        self.asked = asked
        self.headers: dict[str, str] = {}


def completion(text: str | None, finish: str = "stop", usage: Any = (10, 3)) -> dict:
    used = {"prompt_tokens": usage[0], "completion_tokens": usage[1]} if usage else None
    return {"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}], "usage": used}


@contextmanager
def serving(answering: Answering) -> Iterator[FakeServer]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                made.asked.append(body)
                made.headers = {"path": self.path, **dict(self.headers)}
                number = len(made.asked)
            answer = answering(body, number)
            if isinstance(answer, float):
                time.sleep(answer)
                answer = "late"
            status, headers, content = 200, {}, answer
            if isinstance(answer, int):
                status, content = answer, {"error": {"message": f"no: {self.headers.get('Authorization', '')}"}}
            elif isinstance(answer, tuple):
                status, headers, content = answer
            elif isinstance(answer, str):
                content = completion(answer)
            sent = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(sent)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request, client_address) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        made = FakeServer(f"http://127.0.0.1:{server.server_port}/v1", [])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
