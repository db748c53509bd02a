#!/usr/bin/env python3
"""Verifies the journal of one run, independently of the program that wrote it.

    verify-journal.py JOURNAL --public-key KEY [--run-id ID] [--ledger LEDGER]
                      [--anchor FILE] [--require-anchor] [--evidence DIR] [--json]
    verify-journal.py --proof PROOF --public-key KEY [--json]

KEY is a note verifier key (`name+id+base64`), 64 hexadecimal digits, or a file that holds either.
It must come from the auditor, never from beside the journal; without it only the file's agreement
with itself is checked.

Format: lines alternate. A record is canonical JSON `{event, principal, run, seq, time, v}`. After
it stands `{"checkpoint": NOTE}`, where NOTE is a C2SP signed note over three lines: the origin
`<key name>/<run id>`, the number of records so far, and the base64 root of their RFC 6962 tree
(leaf = SHA-256(0x00 || record line)).

With a ledger, KEY may be any key of the project: each change of the key is a ledger line that the
old and the new one sign. An anchor is a file of checkpoint lines that somebody else keeps. A proof
holds the records of one call and needs no journal. A descriptor `{"evidence": {"bytes": N, "sha256": H}}`
and an `evidence_sha256` H stand for the file H in the evidence folder.

Exit: 0 intact; 5 unterminated, live, only self-consistent, or without an anchor that was demanded;
6 truncated, forked or corrupt, evidence that is missing or changed, or a proof that proves nothing;
2 usage.
Needs Python 3.8 or newer and nothing else; `cryptography` makes it faster where it is installed.
"""

import argparse
import base64
import binascii
import fcntl
import hashlib
import json
import os
import re
import stat
import sys

RECORD_BYTES_MAX = 1 << 20
CHECKPOINT_LINE_BYTES_MAX = 512
JOURNAL_BYTES_MAX = 64 << 20
LEDGER_LINE_BYTES_MAX = 32 << 10
LEDGER_BYTES_MAX = 1 << 30
PROOF_RECORDS_MAX = 8
PROOF_BYTES_MAX = 2 * PROOF_RECORDS_MAX * RECORD_BYTES_MAX

KINDS = {
    "RunStarted": "version project client tools tool_set_sha256 policy_sha256 init_sha256 "
                  "max_calls lifetime_ms tool_time_ms",
    "CallRefused": "call_id tool stage reason advice policies call_sha256 approval",
    "CallWithdrawn": "call_id tool cause",
    "CallDispatching": "call_id tool call_sha256 descriptor policies approval",
    "AnswerRefused": "surface from held_id reason last",
    "FilePublicationPrepared": "publication_id call_sha256 path parent_path parent candidate "
                               "target_name bytes sha256",
    "FilePublicationFinished": "publication_id confirmed error",
    "CallSettled": "call_id call_sha256 dispatched_seq outcome duration_us stdout stderr "
                   "created_files worker parser evidence_sha256 effect_happened",
    "InferenceRequested": "request route body_sha256 body_bytes reserved_output_tokens",
    "InferenceCompleted": "request status body_sha256 body_bytes complete reason",
    "RunEnded": "completed cause calls",
    "Custom": "custom_kind digest value",
}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
HEX64 = re.compile(r"[0-9a-f]{64}\Z")
DECIMAL = re.compile(r"(0|[1-9][0-9]{0,18})\Z")


class Fault(Exception):
    def __init__(self, line, reason, verdict="corrupt"):
        super().__init__(reason)
        self.line, self.reason, self.verdict = line, reason, verdict


class Usage(Exception):
    pass


# ---- Ed25519 (RFC 8032 section 5.1), strict: canonical encodings, no small-order points ----

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
SQRT_M1 = pow(2, (P - 1) // 4, P)


def point_add(p, q):
    a = (p[1] - p[0]) * (q[1] - q[0]) % P
    b = (p[1] + p[0]) * (q[1] + q[0]) % P
    c = 2 * p[3] * q[3] * D % P
    d = 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def point_mul(scalar, point):
    result = (0, 1, 1, 0)
    while scalar > 0:
        if scalar & 1:
            result = point_add(result, point)
        point = point_add(point, point)
        scalar >>= 1
    return result


def point_equal(p, q):
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0


def point_decompress(data):
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & ((1 << 255) - 1)
    if y >= P:
        return None
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    if x2 == 0:
        return None if sign else (0, y, 1, 0)
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P != 0:
        x = x * SQRT_M1 % P
    if (x * x - x2) % P != 0:
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


BASE_Y = 4 * pow(5, P - 2, P) % P
BASE = point_decompress(BASE_Y.to_bytes(32, "little"))


def is_weak(point):
    return point_equal(point_mul(8, point), (0, 1, 1, 0))


def verify_plain(public, message, signature):
    a, r = point_decompress(public), point_decompress(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= L or is_weak(a) or is_weak(r):
        return False
    digest = hashlib.sha512(signature[:32] + public + message).digest()
    k = int.from_bytes(digest, "little") % L
    return point_equal(point_mul(s, BASE), point_add(r, point_mul(k, a)))


def verifier(public, plain):
    """A function (message, signature) -> bool for this key."""
    point = point_decompress(public)
    if point is None or is_weak(point):
        raise Usage("the public key is not a usable Ed25519 key")
    if not plain:
        try:
            from cryptography.exceptions import InvalidSignature
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        except ImportError:
            pass
        else:
            key = Ed25519PublicKey.from_public_bytes(public)

            def check(message, signature):
                try:
                    key.verify(signature, message)
                    return True
                except InvalidSignature:
                    return False
            return check
    return lambda message, signature: verify_plain(public, message, signature)


# ---- keys and notes ----

def exact_base64(text):
    """Decodes base64 that has the one spelling of its bytes, else None."""
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        return None
    return data if base64.b64encode(data).decode("ascii") == text else None


class Key:
    def __init__(self, public, plain):
        self.public = public
        self.name = "symbi.local/" + hashlib.sha256(public).hexdigest()[:16]
        self.id = hashlib.sha256(self.name.encode() + b"\n\x01" + public).digest()[:4]
        self.check = verifier(public, plain)


def parse_key(text, plain):
    text = text.strip()
    if HEX64.match(text.lower()):
        return Key(bytes.fromhex(text), plain)
    parts = text.split("+", 2)
    data = exact_base64(parts[2]) if len(parts) == 3 else None
    if data is None or len(data) != 33 or data[0] != 1:
        raise Usage("a public key is a verifier key (name+id+base64) or 64 hexadecimal digits")
    key = Key(data[1:], plain)
    if parts[0] != key.name or parts[1] != key.id.hex():
        raise Usage("the verifier key's name or id does not belong to its key")
    return key


def read_key(argument, plain):
    if os.path.exists(argument):
        with open(argument, "r", encoding="utf-8", errors="replace") as file:
            argument = file.read(4096)
    return parse_key(argument, plain)


def strict_json(data):
    def pairs(items):
        value = {}
        for name, item in items:
            if name in value:
                raise ValueError("duplicate key %s" % ascii(name))
            value[name] = item
        return value

    def refuse(text):
        raise ValueError("the number %s is not allowed" % text)

    return json.loads(data.decode("utf-8"), object_pairs_hook=pairs, parse_constant=refuse)


class Note:
    """A signed note; its signatures are not checked yet."""

    def __init__(self, note, number, signatures_max=1):
        def bad(reason):
            return Fault(number, reason)

        head, blank, signatures = note.partition("\n\n")
        lines = head.split("\n")
        if not blank or len(lines) != 3 or not lines[0]:
            raise bad("the checkpoint is not a signed note of three lines")
        self.origin = lines[0]
        if not DECIMAL.match(lines[1]):
            raise bad("the checkpoint's size is not a plain decimal number")
        self.size = int(lines[1])
        self.root = exact_base64(lines[2])
        if self.root is None or len(self.root) != 32:
            raise bad("the checkpoint's root is not 32 bytes in base64")
        self.text = (head + "\n").encode("utf-8", "surrogatepass")
        if not signatures:
            raise bad("the checkpoint is not signed")
        self.signatures = []
        *lines, rest = signatures.split("\n")
        if rest or not 1 <= len(lines) <= signatures_max:
            raise bad("the checkpoint's signature line is malformed")
        for line in lines:
            match = re.match("\u2014 ([^ +]+) ([^ ]+)\\Z", line)
            data = exact_base64(match.group(2)) if match else None
            if data is None or len(data) != 68:
                raise bad("the checkpoint's signature line is malformed")
            self.signatures.append((match.group(1), data[:4], data[4:]))
        self.name, self.id = self.signatures[0][:2]

    @classmethod
    def of_line(cls, line, number, signatures_max=1):
        def bad(reason):
            return Fault(number, reason)

        try:
            value = strict_json(line)
        except (ValueError, RecursionError):
            raise bad("not a checkpoint line")
        if not isinstance(value, dict) or list(value) != ["checkpoint"]:
            raise bad("not a checkpoint line")
        note = value["checkpoint"]
        if not isinstance(note, str):
            raise bad("not a checkpoint line")
        spelled = '{"checkpoint":"%s"}' % note.replace("\n", "\\n")
        if spelled.encode("utf-8", "surrogatepass") != line:
            raise bad("not a checkpoint line in its one spelling")
        return cls(note, number, signatures_max)

    def verify(self, key, number):
        for name, identity, signature in self.signatures:
            if (name, identity) == (key.name, key.id):
                if not key.check(self.text, signature):
                    raise Fault(number, "the signature does not fit the checkpoint")
                return
        raise Fault(number, "signed by another key (%s)" % ascii(self.name))


# ---- the tree (RFC 6962 section 2.1) ----

class Tree:
    def __init__(self):
        self.size, self.roots = 0, []

    def push(self, line):
        node, rest = hashlib.sha256(b"\x00" + line).digest(), self.size
        while rest & 1:
            node = hashlib.sha256(b"\x01" + self.roots.pop() + node).digest()
            rest >>= 1
        self.roots.append(node)
        self.size += 1

    def root(self):
        if not self.roots:
            return hashlib.sha256(b"").digest()
        node = self.roots[-1]
        for left in reversed(self.roots[:-1]):
            node = hashlib.sha256(b"\x01" + left + node).digest()
        return node


def head_of_path(node, index, size, path):
    """The root that an audit path leads to (RFC 9162 section 2.1.3.2), or None."""
    if not 0 <= index < size:
        return None
    last = size - 1
    for sibling in path:
        if last == 0:
            return None
        if index & 1 or index == last:
            node = hashlib.sha256(b"\x01" + sibling + node).digest()
            while not index & 1 and index:
                index >>= 1
                last >>= 1
        else:
            node = hashlib.sha256(b"\x01" + node + sibling).digest()
        index >>= 1
        last >>= 1
    return node if last == 0 else None


# ---- lines ----

class Pairs:
    """Yields (line number, record, checkpoint); then `tail` has what did not become a pair."""

    def __init__(self, file, record_max, file_max):
        self.file, self.record_max, self.file_max = file, record_max, file_max
        self.number, self.bytes, self.tail = 0, 0, b""
        self.digest = hashlib.sha256()

    def line(self, limit):
        data = self.file.readline(limit + 1)
        self.digest.update(data)
        self.bytes += len(data)
        if self.bytes > self.file_max:
            raise Fault(self.number + 1, "the file is larger than %d bytes" % self.file_max)
        if data.endswith(b"\n"):
            self.number += 1
            return data[:-1], True
        if len(data) > limit:
            raise Fault(self.number + 1, "the line is longer than %d bytes" % limit)
        return data, False

    def __iter__(self):
        while True:
            record, whole = self.line(self.record_max)
            if not whole:
                self.tail = record
                return
            number = self.number
            checkpoint, whole = self.line(CHECKPOINT_LINE_BYTES_MAX)
            if not whole:
                self.tail = record + b"\n" + checkpoint
                return
            yield number, record, checkpoint

    def finish(self):
        while self.bytes <= self.file_max:
            data = self.file.read(1 << 16)
            if not data:
                break
            self.digest.update(data)
            self.bytes += len(data)


# ---- one run ----

def parse_record(line, number):
    try:
        record = strict_json(line)
    except (ValueError, RecursionError) as error:
        raise Fault(number, "not a record: %s" % error)
    if not isinstance(record, dict):
        raise Fault(number, "not a record: not an object")
    if record.get("v") != 1 or isinstance(record.get("v"), bool):
        raise Fault(number, "the record's version is not 1")
    if set(record) != {"v", "run", "seq", "time", "principal", "event"}:
        raise Fault(number, "not a record: other fields than a record has")
    texts = (record["run"], record["time"], record["principal"])
    if not all(isinstance(text, str) for text in texts) or not UUID.match(record["run"]):
        raise Fault(number, "not a record: a field has another type")
    if not isinstance(record["seq"], int) or isinstance(record["seq"], bool):
        raise Fault(number, "not a record: a field has another type")
    event = record["event"]
    kind = event.get("kind") if isinstance(event, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise Fault(number, "not a record: unknown event")
    if not set(event) <= set(KINDS[kind].split()) | {"kind"}:
        raise Fault(number, "not a record: `%s` has an unknown field" % kind)
    if kind == "RunEnded" and not isinstance(event.get("completed"), bool):
        raise Fault(number, "not a record: a field has another type")
    return record, kind


def evidence_in(kind, event):
    """The files that a record names: (hash, size or None)."""
    settled = event.get("evidence_sha256") if kind == "CallSettled" else None
    if isinstance(settled, str) and HEX64.match(settled):
        return {(settled, None)}
    value = event.get("descriptor") if kind == "CallDispatching" else None
    named = value.get("evidence") if isinstance(value, dict) and set(value) == {"evidence"} else None
    if not isinstance(named, dict) or set(named) != {"bytes", "sha256"}:
        return set()
    size, sha256 = named["bytes"], named["sha256"]
    if isinstance(size, bool) or not isinstance(size, int) or not isinstance(sha256, str):
        return set()
    return {(sha256, size)} if size >= 0 and HEX64.match(sha256) else set()


def examine_evidence(folder, named):
    """What became of the files that the records name."""
    found = {"whole": 0, "missing": [], "changed": [], "not_looked_for": 0}
    for sha256, size in sorted(named, key=lambda it: (it[0], -1 if it[1] is None else it[1])):
        if folder is None:
            found["not_looked_for"] += 1
            continue
        try:
            file = open_regular(os.path.join(folder, sha256))
        except (FileNotFoundError, NotADirectoryError):
            found["missing"].append(sha256)
            continue
        except OSError:
            found["changed"].append(sha256)
            continue
        with file:
            actual = os.fstat(file.fileno()).st_size
            digest, left = hashlib.sha256(), actual + 1
            while left > 0 and size in (None, actual):
                chunk = file.read(min(left, 1 << 16))
                if not chunk:
                    break
                digest.update(chunk)
                left -= len(chunk)
        if digest.hexdigest() == sha256:
            found["whole"] += 1
        else:
            found["changed"].append(sha256)
    return found


class Run:
    def __init__(self, key, run, witnessed):
        self.key, self.run, self.witnessed = key, run, witnessed
        self.principal = self.name = None
        self.tree = Tree()
        self.completed = None
        self.records, self.root = 0, self.tree.root()
        self.evidence = set()

    def accept(self, number, line, checkpoint):
        record, kind = parse_record(line, number)
        if self.completed is not None:
            raise Fault(number, "something follows the terminal record")
        if record["seq"] != self.tree.size:
            raise Fault(number, "the record has number %d where %d must stand"
                        % (record["seq"], self.tree.size))
        self.run = self.run or record["run"]
        if record["run"] != self.run:
            raise Fault(number, "the record belongs to another run")
        if self.principal is None:
            self.principal = record["principal"]
        if record["principal"] != self.principal:
            raise Fault(number, "the record has another principal")
        if (kind == "RunStarted") != (record["seq"] == 0):
            raise Fault(number, "a run has one start, its first record")
        self.tree.push(line)
        self.check_note(Note.of_line(checkpoint, number + 1), number + 1)
        self.records, self.root = self.tree.size, self.tree.root()
        self.evidence |= evidence_in(kind, record["event"])
        if kind == "RunEnded":
            self.completed = record["event"]["completed"]
        for size, root in self.witnessed:
            if size == self.records and root != self.root:
                raise Fault(number, "another history of %d records was witnessed" % size, "forked")

    def check_note(self, note, number):
        if self.key:
            note.verify(self.key, number)
        self.name = self.name or (note.name, note.id)
        if (note.name, note.id) != self.name:
            raise Fault(number, "signed by another key")
        if note.origin != "%s/%s" % (note.name, self.run):
            raise Fault(number, "the checkpoint has another origin")
        if note.size != self.tree.size:
            raise Fault(number, "the checkpoint counts %d records where there are %d"
                        % (note.size, self.tree.size))
        if note.root != self.tree.root():
            raise Fault(number, "the records up to here are not those that were signed")


def is_locked(file):
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def identity(file):
    seen = os.fstat(file.fileno())
    return seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def open_regular(path):
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        file.close()
        raise OSError("not a regular file")
    return file


def judge(run, known, ended, tail, live):
    """(verdict, reason) of a file that is good as far as it goes."""
    if known > run.records:
        return "truncated", "%d records were witnessed, and %d are here" % (known, run.records)
    if run.records == 0 and not live:
        return "corrupt", "there is no whole record"
    if ended is not None and ended < run.records:
        return "forked", "the run ended with %d records, and %d are here" % (ended, run.records)
    if run.completed is not None:
        return ("corrupt", "something follows the terminal record") if tail else ("intact", None)
    return ("live" if live else "unterminated"), None


def verify(path, key, run_id, ledger, anchors, evidence=None):
    run_id = run_id or (ledger and ledger["run"])
    if ledger and key:
        key = ledger["key"]
    anchored = read_anchors(anchors, key, run_id)
    witnessed = anchored + (ledger["heads"] if ledger else [])
    run = Run(key, run_id, witnessed)
    with open_regular(path) as file:
        before, live = identity(file), is_locked(file)
        pairs = Pairs(file, RECORD_BYTES_MAX, JOURNAL_BYTES_MAX)
        line = 0
        try:
            for number, record, checkpoint in pairs:
                run.accept(number, record, checkpoint)
            known = max([size for size, _ in witnessed], default=0)
            ended = ledger["ended"] if ledger else None
            verdict, reason = judge(run, known, ended, pairs.tail, live)
            line, whole = pairs.number + 1, True
        except Fault as fault:
            verdict, reason, line = fault.verdict, fault.reason, fault.line
            whole = False
        pairs.finish()
        if not live and identity(file) != before:
            verdict, reason, line = "corrupt", "the file changed while it was read", 0
    return {
        "verdict": verdict,
        "anchored": run.records > 0 and whole and (run.records, run.root) in anchored,
        "self_consistent_only": key is None,
        "run": run.run if run.records else run_id,
        "principal": run.principal if run.records else None,
        "records": run.records,
        "checkpoint": {"size": run.records, "root": run.root.hex()},
        "live": live,
        "completed": run.completed,
        "evidence": examine_evidence(evidence, run.evidence),
        "fault": {"line": line, "reason": reason} if reason else None,
        "tail": {"bytes": len(pairs.tail), "sha256": hashlib.sha256(pairs.tail).hexdigest()}
                if pairs.tail else None,
        "file_bytes": pairs.bytes,
        "file_sha256": pairs.digest.hexdigest(),
    }


# ---- the ledger ----

def head(value):
    size, root = value["size"], value["root"]
    if not isinstance(size, int) or not HEX64.match(root):
        raise ValueError("a head has another type")
    return size, bytes.fromhex(root)


def ledger_pairs(file):
    file.seek(0)
    return Pairs(file, LEDGER_LINE_BYTES_MAX, LEDGER_BYTES_MAX)


def claimed_keys(file, plain):
    """The keys that the ledger's key changes name, oldest first. Nothing is checked yet."""
    keys = []
    try:
        for _, line, _ in ledger_pairs(file):
            if b'"kind":"KeyRotated"' in line:
                event = strict_json(line)["event"]
                keys += [parse_key(event[name], plain)
                         for name in (["to"] if keys else ["from", "to"])]
    except (Fault, KeyError, TypeError, AttributeError, ValueError, RecursionError, Usage):
        pass
    return keys


class Ledger:
    def __init__(self, keys, plain):
        self.keys, self.plain, self.now = keys, plain, 0
        self.tree, self.runs, self.open = Tree(), {}, []

    def key(self):
        return self.keys[self.now] if self.keys else None

    def accept(self, number, line, checkpoint):
        try:
            record = strict_json(line)
            event, open_runs = record["event"], record["open"]
            kind = event["kind"]
            if record["v"] != 1 or record["seq"] != self.tree.size:
                raise ValueError("its version or number is wrong")
            if record["range"] != [node.hex() for node in self.tree.roots]:
                raise ValueError("its range is not the tree before it")
            self.enter(kind, event)
            if open_runs != self.open:
                raise ValueError("its set of open runs is not the real one")
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise Fault(number, "not a ledger line: %s" % error)
        self.tree.push(line)
        rotation = kind == "KeyRotated"
        note = Note.of_line(checkpoint, number + 1, 2 if rotation else 1)
        if self.key():
            note.verify(self.key(), number + 1)
        if rotation:
            self.rotate(event, note, number)
        expected = (note.name + "/ledger", self.tree.size, self.tree.root())
        if (note.origin, note.size, note.root) != expected:
            raise Fault(number + 1, "the lines up to here are not those that were signed")

    def enter(self, kind, event):
        if kind == "KeyRotated":
            if self.open:
                raise ValueError("the key changes while a run is open")
            return
        run, at = event["run"], head(event["checkpoint"])
        if kind == "RunStarted":
            if run in self.runs:
                raise ValueError("the run starts a second time")
            self.runs[run] = {"run": run, "heads": [at], "ended": None, "key": self.key()}
            self.open.append(run)
        elif kind in ("RunEnded", "RunSealed"):
            self.open.remove(run)
            self.runs[run]["heads"].append(at)
            if kind == "RunEnded":
                self.runs[run]["ended"] = at[0]
        elif kind == "RunArchived":
            if run in self.open or run not in self.runs:
                raise ValueError("it archives a run that has no end")
        else:
            raise ValueError("unknown event")

    def rotate(self, event, note, number):
        try:
            keys = [parse_key(event[name], self.plain) for name in ("from", "to")]
        except (KeyError, AttributeError, Usage) as error:
            raise Fault(number, "not a ledger line: %s" % error)
        for key in keys:
            note.verify(key, number + 1)
        if self.keys:
            if self.now + 1 >= len(self.keys) or self.keys[self.now + 1].public != keys[1].public:
                raise Fault(number, "its key is not the next one")
            self.now += 1


def read_ledger(path, key, wanted, plain):
    """What a ledger says of one run, after checking all of it."""
    with open_regular(path) as file:
        keys = [key] if key else []
        if key:
            claimed = claimed_keys(file, plain)
            if any(other.public == key.public for other in claimed):
                keys = claimed
        ledger = Ledger(keys, plain)
        for number, line, checkpoint in ledger_pairs(file):
            ledger.accept(number, line, checkpoint)
    return ledger.runs.get(wanted)


# ---- anchors ----

def read_anchors(paths, key, run_id):
    """The heads of the run in files that others keep; what is not one is passed over."""
    heads = []
    for path in paths:
        with open_regular(path) as file:
            while True:
                line = file.readline(CHECKPOINT_LINE_BYTES_MAX * 2)
                if not line:
                    break
                start = line.rfind(b'{"checkpoint":')
                if start < 0:
                    continue
                try:
                    note = Note.of_line(line[start:].rstrip(b"\n"), 0)
                    note.verify(key, 0)
                except Fault:
                    continue
                if note.origin == "%s/%s" % (key.name, run_id):
                    heads.append((note.size, note.root))
    return heads


# ---- proofs ----

class Owner:
    """Which records are one call's, in their order."""

    def __init__(self, call):
        self.call, self.publications = call, []
        self.digest = call if HEX64.match(call) else None

    def owns(self, kind, event):
        named = event.get("call_id") == self.call
        same = self.digest is not None and event.get("call_sha256") == self.digest
        if kind == "CallDispatching":
            if named or same:
                self.digest = event.get("call_sha256")
            return named or same
        if kind in ("CallRefused", "CallSettled"):
            return named or same
        if kind == "CallWithdrawn":
            return named
        if kind == "FilePublicationPrepared":
            if same:
                self.publications.append(event.get("publication_id"))
            return same
        return kind == "FilePublicationFinished" and event.get("publication_id") in self.publications


def is_complete(events):
    kinds = [kind for kind, _ in events]
    if kinds in (["CallRefused"], ["CallWithdrawn"]):
        return True
    if len(kinds) < 2 or kinds[0] != "CallDispatching" or kinds[-1] != "CallSettled":
        return False
    intents = kinds.count("FilePublicationPrepared")
    files = events[-1][1].get("created_files")
    return intents == kinds.count("FilePublicationFinished") and intents >= len(files)


def check_proof(path, key):
    """What a proof file proves. A Fault's line is the record's place in the proof, from 1."""
    with open_regular(path) as file:
        data = file.read(PROOF_BYTES_MAX + 1)
    if len(data) > PROOF_BYTES_MAX:
        raise Fault(0, "the proof is larger than %d bytes" % PROOF_BYTES_MAX)
    try:
        proof = strict_json(data)
        if set(proof) != {"kind", "v", "run", "call", "checkpoint", "records"}:
            raise ValueError("other fields than a proof has")
        if (proof["kind"], proof["v"]) != ("symbi-call-proof", 1):
            raise ValueError("another kind or version")
        if not UUID.match(proof["run"]) or not 1 <= len(proof["records"]) <= PROOF_RECORDS_MAX:
            raise ValueError("no records, too many, or no run")
        note, owner = Note(proof["checkpoint"], 0), Owner(proof["call"])
        items = [(it["index"], it["record"].encode(), [bytes.fromhex(n) for n in it["path"]])
                 for it in proof["records"]]
        if any(set(it) != {"index", "record", "path"} for it in proof["records"]):
            raise ValueError("a record has other fields")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Fault(0, "not a proof: %s" % error)
    if key:
        note.verify(key, 0)
    if note.origin != "%s/%s" % (note.name, proof["run"]):
        raise Fault(0, "the checkpoint has another origin")
    events, before, principal = [], -1, None
    for number, (index, line, path) in enumerate(items, 1):
        record, kind = parse_record(line, number)
        principal = principal or record["principal"]
        if (record["run"], record["seq"]) != (proof["run"], index) or index <= before \
                or record["principal"] != principal or not owner.owns(kind, record["event"]):
            raise Fault(number, "the record has another run, number, principal or call")
        leaf = hashlib.sha256(b"\x00" + line).digest()
        if head_of_path(leaf, index, note.size, path) != note.root:
            raise Fault(number, "the record is not in the signed journal")
        before = index
        events.append((kind, record["event"]))
    return {
        "run": proof["run"],
        "call": proof["call"],
        "checkpoint": {"size": note.size, "root": note.root.hex()},
        "self_consistent_only": key is None,
        "complete": is_complete(events),
        "records": [kind for kind, _ in events],
    }


def main_proof(arguments, key):
    try:
        proof = check_proof(arguments.proof, key)
    except Fault as fault:
        report = {"fault": {"line": fault.line, "reason": fault.reason}}
        print(json.dumps(report) if arguments.json
              else "proves nothing: %s" % ascii(fault.reason)[1:-1])
        return 6
    if arguments.json:
        print(json.dumps(proof, sort_keys=True))
    else:
        print("call %s of run %s: %s%s" % (ascii(proof["call"]), proof["run"],
              ", ".join(proof["records"]), "" if proof["complete"] else " (not all of it)"))
    return 5 if proof["self_consistent_only"] else 0


def exit_code(report, require_anchor):
    if report["verdict"] in ("truncated", "forked", "corrupt"):
        return 6
    if report["evidence"]["missing"] or report["evidence"]["changed"]:
        return 6
    if report["verdict"] != "intact" or report["self_consistent_only"]:
        return 5
    return 5 if require_anchor and not report["anchored"] else 0


def show(report, path):
    print("%s: %s, %s%s" % (ascii(path)[1:-1], report["verdict"],
                        "anchored" if report["anchored"] else "not anchored",
                        ", self-consistent only (no public key)"
                        if report["self_consistent_only"] else ""))
    print("  run %s, %d whole records, root %s"
          % (report["run"], report["records"], report["checkpoint"]["root"]))
    if report["principal"] is not None:
        print("  principal %s" % ascii(report["principal"])[1:-1])
    if report["fault"]:
        print("  line %d: %s" % (report["fault"]["line"], ascii(report["fault"]["reason"])[1:-1]))
    if report["tail"]:
        print("  %d bytes of an unfinished write follow" % report["tail"]["bytes"])
    for word in ("missing", "changed"):
        for sha256 in report["evidence"][word]:
            print("  evidence %s: %s" % (word, sha256))
    print("  file: %d bytes, sha256 %s" % (report["file_bytes"], report["file_sha256"]))


def main():
    parser = argparse.ArgumentParser(description="Verify the journal of one run.")
    parser.add_argument("journal", nargs="?")
    parser.add_argument("--public-key", help="verifier key, 64 hex digits, or a file with either")
    parser.add_argument("--run-id", help="the run that the journal must hold")
    parser.add_argument("--ledger", help="the project's ledger; needs --run-id")
    parser.add_argument("--anchor", action="append", default=[], metavar="FILE",
                        help="checkpoint lines that somebody else keeps; needs --public-key and "
                             "--run-id")
    parser.add_argument("--require-anchor", action="store_true")
    parser.add_argument("--evidence", metavar="DIR",
                        help="the folder of the files that records name as evidence")
    parser.add_argument("--proof", help="check the proof of one call instead of a journal")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--plain", action="store_true", help="do not use `cryptography`")
    arguments = parser.parse_args()
    try:
        key = read_key(arguments.public_key, arguments.plain) if arguments.public_key else None
        if arguments.run_id and not UUID.match(arguments.run_id):
            raise Usage("the run id is not a UUID in lower case with hyphens")
        if arguments.ledger and not arguments.run_id:
            raise Usage("--ledger needs --run-id")
        if arguments.anchor and not (key and arguments.run_id):
            raise Usage("--anchor needs --public-key and --run-id")
        if bool(arguments.journal) == bool(arguments.proof):
            raise Usage("name a journal, or a proof with --proof")
        if arguments.proof:
            return main_proof(arguments, key)
        ledger = None
        if arguments.ledger:
            try:
                ledger = read_ledger(arguments.ledger, key, arguments.run_id, arguments.plain)
            except Fault as fault:
                print("the ledger is corrupt at line %d: %s" % (fault.line, ascii(fault.reason)),
                      file=sys.stderr)
                return 6
        report = verify(arguments.journal, key, arguments.run_id, ledger, arguments.anchor,
                        arguments.evidence)
    except (Usage, OSError) as error:
        print("verify-journal.py: %s" % error, file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps(report, sort_keys=True))
    else:
        show(report, arguments.journal)
    return exit_code(report, arguments.require_anchor)


if __name__ == "__main__":
    sys.exit(main())
