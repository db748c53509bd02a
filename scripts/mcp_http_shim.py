"""Serves MCP servers that speak over standard streams as Streamable HTTP, for test suites that speak HTTP.

For tests only, on loopback only. A client that begins with `initialize` gets a server process of its own,
named by its session id; requests that name their revision share one, with ids of the shim's own, because
several clients use the same numbers. What a server says of a request goes out as its event stream; an error
that comes first is a plain answer with the status that the transport's specification gives it.

Needs Python 3.8 and nothing else.
"""

import http.server
import itertools
import json
import queue
import subprocess
import threading
import uuid

PATIENCE = 60
VERSION = "io.modelcontextprotocol/protocolVersion"
STATUS = {-32601: 404, -32602: 400, -32020: 400, -32021: 400, -32022: 400}


class Peer:
    """One server process, and who waits for what it says."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.lock, self.numbers, self.waiting = threading.Lock(), itertools.count(), {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            with self.lock:
                told = self.waiting.get(("id", message["id"])) if "id" in message else None
                if message.get("method") == "notifications/progress":
                    told = self.waiting.get(("token", str(message["params"]["progressToken"])))
            if told:
                told.put(message)
        with self.lock:
            for told in self.waiting.values():
                told.put(None)

    def send(self, message):
        with self.lock:
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()

    def ask(self, message):
        """Yields what the server says of a request, its answer last, under the request's own id."""
        number, told = "shim-%d" % next(self.numbers), queue.Queue()
        keys = [("id", number)]
        token = ((message.get("params") or {}).get("_meta") or {}).get("progressToken")
        if token is not None:
            keys.append(("token", str(token)))
        with self.lock:
            self.waiting.update({key: told for key in keys})
        self.send(dict(message, id=number))
        try:
            while True:
                said = told.get(timeout=PATIENCE)
                if said is None:
                    return
                if "method" not in said:
                    yield dict(said, id=message["id"])
                    return
                yield said
        finally:
            with self.lock:
                for key in keys:
                    self.waiting.pop(key, None)

    def close(self):
        """The exit code, once the server has ended with its input."""
        self.process.stdin.close()
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def plain(self, status, body=None, headers=()):
        text = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if body is not None:
            self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.plain(405)

    def do_DELETE(self):
        self.server.forget(self.headers.get("mcp-session-id"))
        self.plain(200)

    def do_POST(self):
        text = self.rfile.read(int(self.headers.get("content-length", "0")))
        try:
            message = json.loads(text)
            method = message["method"]
        except (ValueError, KeyError, TypeError):
            error = {"code": -32700, "message": "not a message"}
            return self.plain(400, {"jsonrpc": "2.0", "id": None, "error": error})
        session = self.headers.get("mcp-session-id")
        meta = (message.get("params") or {}).get("_meta") or {}
        # A request without any sign of its era is the session's that it has none of: a newer one.
        if method == "initialize" and VERSION not in meta:
            session = self.server.begin()
        peer = self.server.peer(session)
        if peer is None:
            return self.plain(404)
        headers = [("mcp-session-id", session)] if session else []
        if "id" not in message:
            peer.send(message)
            return self.plain(202, headers=headers)
        return self.answer(peer, message, headers, modern=session is None)

    def answer(self, peer, message, headers, modern):
        said = peer.ask(message)
        first = next(said, None)
        if first is None:
            return self.plain(502)
        if "error" in first:
            status = STATUS.get(first["error"]["code"], 400) if modern else 200
            return self.plain(status, first, headers)
        self.send_response(200)
        for name, value in headers + [("content-type", "text/event-stream"), ("connection", "close")]:
            self.send_header(name, value)
        self.end_headers()
        for event in itertools.chain([first], said):
            self.wfile.write(b"event: message\ndata: %s\n\n" % json.dumps(event).encode())
            self.wfile.flush()
        self.close_connection = True
        return None


class Shim(http.server.ThreadingHTTPServer):
    """`with Shim(command, environment) as url`; afterwards `codes` has the servers' exit codes."""

    daemon_threads = True

    def __init__(self, command, environment):
        super().__init__(("127.0.0.1", 0), Handler)
        self.command, self.environment = command, environment
        self.guard, self.peers, self.codes = threading.Lock(), {}, []

    def begin(self):
        session = uuid.uuid4().hex
        with self.guard:
            self.peers[session] = Peer(self.command, self.environment)
        return session

    def peer(self, session):
        with self.guard:
            if session is None and None not in self.peers:
                self.peers[None] = Peer(self.command, self.environment)
            return self.peers.get(session)

    def forget(self, session):
        with self.guard:
            peer = self.peers.pop(session, None) if session else None
        if peer:
            self.codes.append(peer.close())

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return "http://127.0.0.1:%d/mcp" % self.server_address[1]

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
        for peer in self.peers.values():
            self.codes.append(peer.close())
