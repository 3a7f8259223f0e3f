# SPDX-License-Identifier: Apache-2.0
"""expertctl top on a terminal: watch_top.py FOLDER, which is made and filled as a mount of GLM-5.2 would be.

The files are changed meanwhile, as a daemon that works, goes away, comes back or hangs would do.
"""
import json
import os
import random
import signal
import sys

from screen import Terminal

mount = sys.argv[1]
control = os.path.join(mount, ".expertfs")
top = ["expertctl", "top", mount, "--interval", "0.1"]

STATS = {
    "version": 1, "store": "/data/glm.store", "mode": "passthrough", "io": "io_uring", "policy": "lfru:weight=0.3",
    "uptime_s": 3723.5,
    "memory": {"budget": 16 << 30, "used": 14 << 30, "capacity": 15 << 30, "slots": 732, "evicted_but_mapped": 1 << 24},
    "experts": {"total": 19456, "resident": 732, "held": 8, "loading": 2, "pinned": 4},
    "opens": 1234567, "hits": 1000000, "misses": 234567, "hit_rate": 0.81, "hit_rate_1m": 0.934,
    "load_ms": {"p50": 1.2, "p95": 3.4, "p99": 9.9}, "prefetch": {"asked": 1000, "loaded": 900, "used": 720},
    "evictions": 233000, "errors": 0,
    "drives": [{"number": i, "path": "/mnt/nvme%d/a/longer/folder/glm.shard" % i, "role": "store",
                "state": "ok" if i < 3 else "failing", "bytes_read": 1e12 * (i + 1) / 3, "reads": 10**6,
                "errors": 0 if i < 3 else 17, "in_flight": 7, "speed": 3.2e9, "gb_per_s": 2.9,
                "queue": {"demand": 20e6, "prefetch": 5e6, "promotion": 0}, "read_ms": {"p50": 0.4, "p99": 2.2}}
               for i in range(4)],
}


def fill_folder():
    random.seed(1)
    os.makedirs(control)
    with open(os.path.join(control, "stats.json"), "w", encoding="utf-8") as f:
        json.dump(STATS, f)
    with open(os.path.join(control, "map"), "w", encoding="utf-8") as f:
        f.write("# hottest 812.5\n")
        for layer in range(3, 79):
            f.write("%03d %s\n" % (layer, "".join(random.choice("0000000111223345ABCDEFGHIJK") for _ in range(256))))
    with open(os.path.join(control, "top"), "w", encoding="utf-8") as f:
        f.write("# expert heat uses loads last_use load_ms state pinned held\n")
        for i in range(30):
            f.write("%d/%d %g %d %d 1764446000 3.25 %s %s -\n" % (
                3 + i * 2, i * 7, 812.5 / (i + 1), 50000 / (i + 1), i, "resident" if i % 4 else "cold",
                "pinned" if i % 5 == 1 else "-"))


def change(**members):
    """stats.json with other numbers, in one go."""
    path = os.path.join(control, "stats.json")
    with open(path, encoding="utf-8") as f:
        stats = json.load(f)
    stats.update(members)
    with open(path + ".new", "w", encoding="utf-8") as f:
        json.dump(stats, f)
    os.rename(path + ".new", path)
    return stats


def draws():
    with Terminal(24, 80, top) as t:
        t.expect(r"^ expertfs  .*every 0\.1 s$", r"^  1 Overview  2 Drives  3 Map  4 Hottest", r"^ memory .* of ",
                 r"^ hit rate", r"^ 0 .*B/s", r"layers x 256 experts, a cell is", r"^ q quit")
        assert t.screen.seen_alternate and t.screen.coloured
        assert len(t.screen.lines()) == 24
        t.type("q")
        t.expect_end(0)


def views():
    with Terminal(24, 80, top) as t:
        t.expect("^ hit rate")
        t.type("\t")
        t.expect(r"^ +/.*\.shard$", r"reads, p50")
        t.type("3")
        t.expect("^ 76 layers x 256 experts, a cell is 4 x 4", "^    3 ", "^   75 ", "^ heat")
        t.type("\x1bOC")  # right
        t.expect("expert +heat +uses +loads", "^    1  ", "^   20  ")
        t.type("\x1bOD\x1bOD")  # left, twice
        t.expect(r"reads, p50")
        t.type("4")
        t.expect("^    1  ")
        t.type("\x1bOB" * 3)  # down
        t.expect_not("^    1  ")
        t.expect("^    4  ")
        t.type("\x1bOA" * 9)
        t.expect("^    1  ")
        t.type("+")
        t.expect(r"every 0\.2 s$")
        t.type("++++++++++")
        t.expect(r"every 60 s$")
        t.type("-" * 20)
        t.expect(r"every 0\.1 s$")
        t.type("1Q")
        t.expect_end(0)


def numbers_move():
    stats = change()
    with Terminal(24, 80, top) as t:
        t.expect("^ hits .* opens/s")
        t.wait(lambda: t.matches(r"^ hits .* 0 opens/s"), "nothing happens")
        opens, hits, uptime = stats["opens"], stats["hits"], stats["uptime_s"]
        drives = stats["drives"]
        for i in range(40):
            opens, hits, uptime = opens + 100, hits + 90, uptime + 0.1
            drives[0]["bytes_read"] += 1e8
            change(opens=opens, hits=hits, uptime_s=uptime, drives=drives)
            t.read(0.05)
            if t.matches(r"^ hits +\[.*\] 90\.0 % ") and t.matches("█ +"):
                break
        t.expect(r"^ hits +\[.*\] 90\.0 % ")
        t.type("\x03")
        t.expect_end(0)


def sizes():
    with Terminal(24, 80, top) as t:
        t.expect("^ q quit")
        t.resize(50, 200)
        t.expect("^ 76 layers x 256 experts, a cell is")
        t.wait(lambda: t.screen.lines()[49].startswith(" q quit"), "it fills 50 lines")
        t.type("3")
        t.expect("a cell is 2 x 2$")
        t.resize(82, 270)
        t.expect("^ 76 layers x 256 experts$", "^   78 ")
        for rows, cols in (10, 40), (3, 10), (1, 1), (24, 80):
            t.resize(rows, cols)
        t.expect("a cell is 4 x 4$")
        t.type("q")
        t.expect_end(0)


def signals():
    for sig in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT:
        with Terminal(24, 80, top) as t:
            t.expect("^ q quit")
            os.kill(t.pid, sig)
            t.expect_end(0)
    # Ctrl-Z stops it only below a shell. The terminal is whole meanwhile.
    with Terminal(24, 80, ["bash", "--norc", "--noprofile", "-i"], PS1="ready> ") as t:
        t.expect("^ready>")
        t.type("expertctl top '%s'\n" % mount)
        t.expect("^ q quit")
        t.type("\x1a")
        t.wait(lambda: not t.screen.alternate and t.screen.cursor, "Ctrl-Z")
        t.expect("^ready>")
        t.type("fg\n")
        t.wait(lambda: t.screen.alternate, "it goes on")
        t.expect("^ q quit")
        t.type("q")
        t.wait(lambda: not t.screen.alternate and t.screen.cursor, "its end")


def colours():
    with Terminal(24, 80, top, NO_COLOR="1") as t:
        t.expect("^ q quit")
        t.type("3")
        t.expect("most", "pinned")
        assert not t.screen.coloured, "NO_COLOR was not heeded"
        t.type("q")
        t.expect_end(0)
    with Terminal(24, 80, top, TERM="xterm", LC_ALL="C") as t:
        t.expect("^ q quit", r"\[#+\.*\]")
        t.type("3")
        t.expect("^ heat")
        assert t.screen.coloured
        assert all(ord(c) < 128 for line in t.screen.lines() for c in line)
        t.type("q")
        t.expect_end(0)


def dumb():
    for term in "dumb", "no-such-terminal":
        with Terminal(200, 80, top, TERM=term) as t:
            t.expect("^ expertfs  ")
            t.wait(lambda: t.raw.count(b" memory ") >= 3, "frame after frame")
            assert b"\x1b" not in t.raw
            t.type("\x03")
            t.expect_end(0)


def daemon_goes():
    away = control + ".away"
    with Terminal(24, 80, top) as t:
        t.expect("^ q quit")
        os.rename(control, away)
        t.expect(r"^ waiting, gone for \d+ s: no store is mounted on ")
        t.expect("^ memory .* of ")  # as it was last
        os.rename(away, control)
        t.expect("^  1 Overview")
        t.type("q")
        t.expect_end(0)
    os.rename(control, away)
    with Terminal(24, 80, top) as t:
        t.expect("^ waiting: no store is mounted on ")
        os.rename(away, control)
        t.expect("^ memory .* of ")
        t.type("q")
        t.expect_end(0)


def daemon_hangs():
    """A pipe that nobody writes to: open(2) of it never comes back."""
    path = os.path.join(control, "stats.json")
    os.rename(path, path + ".away")
    os.mkfifo(path)
    try:
        with Terminal(24, 80, top) as t:
            t.expect("^ expertfs ")
            t.type("3")
            t.type("q")
            t.expect_end(0)
    finally:
        os.unlink(path)
        os.rename(path + ".away", path)


fill_folder()
for test in draws, views, numbers_move, sizes, signals, colours, dumb, daemon_goes, daemon_hangs:
    print("top:", test.__name__, flush=True)
    test()
