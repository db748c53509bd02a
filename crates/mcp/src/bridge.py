"""Copies bytes between standard input and output and one unix socket, both ways.

Usage: python3 -I bridge.py SOCKET

When standard input ends, the socket's write side is shut down, what still comes is copied, and
the exit code is 0. When the socket ends first, it is 1, with a line on standard error.

One thread and one poll loop: a contained agent has few processes to spend. Standard input and
output are never made non-blocking, because they are shared with the process that started us; a
piece of PIECE bytes does not block once poll says that there is room.
"""

import errno
import os
import select
import signal
import socket
import sys

STDIN = 0
STDOUT = 1
BUFFER_BYTES_MAX = 65536
PIECE_BYTES_MAX = 4096  # PIPE_BUF: what a pipe takes whole when poll reports room
SOCKET_PATH_BYTES_MAX = 107  # sizeof(sun_path) - 1

AGAIN = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR)


class Ended(Exception):
    """The bridge cannot go on, for the reason given."""


def connect(path):
    """A connected, non-blocking socket; a path too long for an address is reached from its folder."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        address = path
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
            os.chdir(os.path.dirname(path) or ".")
            address = os.path.join(".", os.path.basename(path))
        channel.connect(address)
    except ConnectionRefusedError:
        raise Ended("the run takes no more connections: it has ended, or those of the whole run are"
                    " used up (keep one open instead of making new ones)")
    except OSError as error:
        raise Ended("cannot connect to {}: {}".format(ascii(path), error.strerror or error))
    channel.setblocking(False)
    return channel


def receive(channel):
    """Bytes from the socket; empty at its end; None if there are none now."""
    try:
        return channel.recv(BUFFER_BYTES_MAX)
    except OSError as error:
        if error.errno in AGAIN:
            return None
        raise Ended("the socket failed: {}".format(error.strerror))


def send(channel, data):
    """How many bytes of data the socket took; None once it takes no more, ever."""
    try:
        return channel.send(data)
    except OSError as error:
        if error.errno in AGAIN:
            return 0
        return None


def read_input():
    """Bytes from standard input; empty at its end."""
    try:
        return os.read(STDIN, BUFFER_BYTES_MAX)
    except OSError:
        return b""


def write_output(data):
    """How many bytes of data standard output took."""
    try:
        return os.write(STDOUT, data[:PIECE_BYTES_MAX])
    except OSError as error:
        if error.errno in AGAIN:
            return 0
        raise Ended("standard output failed: {}".format(error.strerror))


def copy(channel):
    """Copies until the socket has ended and all of it is written; says whether input ended first."""
    upward = b""  # from standard input, for the socket
    downward = b""  # from the socket, for standard output
    input_open = True
    sending = True
    receiving = True
    failure = None
    while receiving or downward:
        channel_events = 0
        if receiving and len(downward) < BUFFER_BYTES_MAX:
            channel_events |= select.POLLIN
        if sending and upward:
            channel_events |= select.POLLOUT
        poll = select.poll()
        if channel_events:
            poll.register(channel, channel_events)
        if input_open and sending and len(upward) < BUFFER_BYTES_MAX:
            poll.register(STDIN, select.POLLIN)
        if downward:
            poll.register(STDOUT, select.POLLOUT)
        ready = dict(poll.poll())

        if STDIN in ready:
            data = read_input()
            upward += data
            input_open = bool(data)
        if channel.fileno() in ready and sending and upward:
            taken = send(channel, upward)
            if taken is None:
                sending = False
            else:
                upward = upward[taken:]
        if sending and not input_open and not upward:
            sending = False
            try:
                channel.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # the other side has closed: receiving says so
        if channel.fileno() in ready and channel_events & select.POLLIN:
            try:
                data = receive(channel)
            except Ended as reason:  # what came before it is still written
                data = b""
                failure = reason
            if data is not None:
                downward += data
                receiving = bool(data)
        if STDOUT in ready:
            downward = downward[write_output(downward):]
    if failure:
        raise failure
    return not input_open and not upward


def main(arguments):
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # end quietly, as other programs do
    if len(arguments) != 2 or sys.stdin is None or sys.stdout is None:
        sys.stderr.write("usage: bridge.py SOCKET, with standard input and output open\n")
        return 2
    try:
        if copy(connect(arguments[1])):
            return 0
        raise Ended("the socket was closed")
    except Ended as reason:
        sys.stderr.write("symbi bridge: {}\n".format(reason))
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
