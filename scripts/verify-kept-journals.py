#!/usr/bin/env python3
"""Verifies every journal that the tests kept, and compares with what `symbi` says of it.

    verify-kept-journals.py FOLDER --at-least N

Below FOLDER stand folders with `journal.jsonl`, perhaps `ledger.jsonl`, and `case.json`: the key,
the run, and the other verifier's verdict. Exit: 0 where both agree on all of at least N journals, 1
otherwise. Needs Python 3.8; `cryptography` makes it faster.
"""

import argparse
import importlib.util
import json
import os
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
COMPARED = ("verdict", "records", "checkpoint", "file_sha256")


def load_verifier():
    path = os.path.join(HERE, "verify-journal.py")
    spec = importlib.util.spec_from_file_location("verify_journal", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def difference(verifier, folder):
    """What the two verifiers do not agree on, and the verdict."""
    with open(os.path.join(folder, "case.json"), encoding="utf-8") as file:
        case = json.load(file)
    key, ledger = verifier.parse_key(case["key"], False), None
    path = os.path.join(folder, "ledger.jsonl")
    if os.path.exists(path):
        ledger = verifier.read_ledger(path, key, case["run"], False)
    report = verifier.verify(os.path.join(folder, "journal.jsonl"), key, case["run"], ledger, [])
    found = ["%s: %s here, %s there" % (name, report[name], case[name])
             for name in COMPARED if name in case and report[name] != case[name]]
    return "; ".join(found), report["verdict"]


def main():
    parser = argparse.ArgumentParser(description="Verify the journals that the tests kept.")
    parser.add_argument("folder")
    parser.add_argument("--at-least", type=int, required=True, metavar="N")
    arguments = parser.parse_args()
    verifier = load_verifier()
    counts, bad = {}, 0
    for name in sorted(os.listdir(arguments.folder)):
        folder = os.path.join(arguments.folder, name)
        if not os.path.exists(os.path.join(folder, "case.json")):
            print("FAILED %s: half of a case" % name)
            bad += 1
            continue
        try:
            differs, verdict = difference(verifier, folder)
        except (verifier.Fault, verifier.Usage, OSError, ValueError, KeyError) as error:
            differs, verdict = "%s: %s" % (type(error).__name__, vars(error) or error), "none"
        counts[verdict] = counts.get(verdict, 0) + 1
        if differs:
            print("FAILED %s: %s" % (name, differs))
            bad += 1
    total = sum(counts.values())
    print("%d journals: %s" % (total, ", ".join("%d %s" % (counts[it], it) for it in sorted(counts))))
    if total < arguments.at_least:
        print("FAILED: there must be at least %d" % arguments.at_least)
        bad += 1
    print("%d failed" % bad)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
