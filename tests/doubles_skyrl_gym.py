"""An environment of one's own in skyrl-gym's registry, and a retrieval server in the protocol of its search tool."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DOCUMENTS = (
    "Sokoban was made in 1981 by Hiroyuki Imabayashi.",
    "Wordle was made in 2021 by Josh Wardle.",
    'A quote: {"result": "Search error: none"}',
)


class Retrieval:
    """A server on loopback that ranks `DOCUMENTS` by the words that they share with the query."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.status = 200
        retrieval = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                retrieval.queries.append(asked["query"])
                body = json.dumps({"result": [ranked(asked["query"], asked["topk"])]}).encode()
                self.send_response(retrieval.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/retrieve"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def ranked(query: str, count: int) -> list[dict[str, Any]]:
    words = set(query.lower().split())
    by_words = sorted(DOCUMENTS, key=lambda text: -len(words & set(text.lower().rstrip(".").split())))
    return [{"document": {"contents": text}, "score": 1.0} for text in by_words[:count]]


def register_countdown() -> None:
    """Register "count-down": say the number that the observation asks for, until it is 0."""
    import skyrl_gym
    from skyrl_gym.envs.base_text_env import BaseTextEnv

    class CountDown(BaseTextEnv):
        def __init__(self, env_config, extras):
            super().__init__()
            self.left, self.config = extras["start"], env_config
            self.max_turns = extras.get("max_turns", 9)

        def init(self, prompt):
            return [{"role": "system", "content": "Count down."}, *prompt], {}

        def step(self, action):
            self.turns += 1
            self.left -= action.strip() == str(self.left)
            seen = [] if self.config.get("silent") else [{"role": self.config.role, "content": f"Say {self.left}."}]
            done = self.left < 0 or self.turns >= self.max_turns
            return {"observations": seen, "reward": 0.75 * (self.left < 0), "done": done, "metadata": {}}

    if "count-down" not in skyrl_gym.registry:
        skyrl_gym.register("count-down", CountDown)
