"""Starts an agent beside a loopback adapter that carries its model requests to a unix socket.

Usage: python3 -I adapter.py SOCKET PORT COMMAND [ARGUMENT...]

The agent's network is a loopback of its own: http://127.0.0.1:PORT is the only thing there. Each
request is passed on over a connection that is kept for the next one, because the socket takes only
a limited number of connections. Answers pass as they arrive. The exit code is the agent's; 128 + N
where signal N ended it.

The adapter has no authority: what may be asked, and of whom, is decided behind the socket.
"""

import http.client
import http.server
import os
import queue
import signal
import socket
import subprocess
import sys
import threading

CONNECTIONS_MAX = 3
BODY_BYTES_MAX = 4 << 20
PIECE_BYTES_MAX = 65536
HOP_HEADERS = ("connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding",
               "upgrade", "expect", "content-length", "host")


class Upstream(http.client.HTTPConnection):
    """An HTTP connection over the unix socket."""

    def __init__(self, path):
        http.client.HTTPConnection.__init__(self, "localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)


class Adapter(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    idle = None  # a queue of connections that are kept

    def log_message(self, *arguments):
        pass

    def refuse(self, status, message):
        body = ('{"type":"error","error":{"type":"invalid_request_error","message":"%s"}}' % message).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = True

    def read_chunked(self):
        parts, total = [], 0
        while True:
            size = int(self.rfile.readline(64).split(b";")[0], 16)
            if size < 0 or total + size > BODY_BYTES_MAX:
                raise ValueError
            if size == 0:
                while self.rfile.readline(1024) not in (b"\r\n", b"\n", b""):
                    pass
                return b"".join(parts)
            parts.append(self.rfile.read(size))
            total += size
            self.rfile.readline(8)

    def read_body(self):
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            return self.read_chunked()
        size = int(self.headers.get("content-length", "0"))
        if not 0 <= size <= BODY_BYTES_MAX:
            raise ValueError
        return self.rfile.read(size)

    def ask(self, body):
        """The upstream's answer. A kept connection may have gone stale: then once more, on a new one,
        but only while nothing of an answer has come."""
        headers = {}
        for name, value in self.headers.items():
            if name.lower() not in HOP_HEADERS:
                headers[name] = value
        connection = self.idle.get()
        fresh = connection.sock is None
        try:
            try:
                connection.request(self.command, self.path, body or None, headers)
                return connection, connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError):
                connection.close()
                if fresh:
                    raise
                connection.request(self.command, self.path, body or None, headers)
                return connection, connection.getresponse()
        except Exception:
            connection.close()
            self.idle.put(connection)
            raise

    def carry(self):
        try:
            body = self.read_body()
        except (ValueError, OSError):
            return self.refuse(400, "the request body is malformed or over 4 MiB")
        try:
            connection, answer = self.ask(body)
        except Exception:
            return self.refuse(400, "the run's inference channel is closed: the run has ended, or"
                                    " its connections are used up")
        whole = False
        try:
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_HEADERS and name.lower() not in ("date", "server"):
                    self.send_header(name, value)
            if self.command == "HEAD":
                self.send_header("content-length", "0")
                self.end_headers()
                answer.read()
            else:
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                while True:
                    piece = answer.read1(PIECE_BYTES_MAX)
                    if not piece:
                        break
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            answer.close()  # older Pythons: read1 leaves an answer with a length open
            whole = True
        except Exception:
            self.close_connection = True
        finally:
            if not whole:
                connection.close()
            self.idle.put(connection)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = carry


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16


def main(arguments):
    if len(arguments) < 4:
        sys.stderr.write("usage: adapter.py SOCKET PORT COMMAND [ARGUMENT...]\n")
        return 2
    Adapter.idle = queue.Queue()
    for _ in range(CONNECTIONS_MAX):
        Adapter.idle.put(Upstream(arguments[1]))
    server = Server(("127.0.0.1", int(arguments[2])), Adapter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        agent = subprocess.Popen(arguments[3:])
    except OSError as error:
        sys.stderr.write("symbi adapter: cannot start {}: {}\n".format(ascii(arguments[3]), error.strerror))
        return 127
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, frame: agent.send_signal(got))
    code = agent.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    code = main(sys.argv)
    sys.stdout.flush()
    os._exit(code)
