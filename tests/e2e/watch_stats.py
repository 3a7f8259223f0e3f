# SPDX-License-Identifier: Apache-2.0
"""What a daemon tells of itself.

    watch_stats.py check MOUNT README    stats.json has the members and types that it must have, each is in
                                         README's table; its sums hold; metrics says the same
    watch_stats.py is MOUNT KEY=VALUE... these members have these values; KEY as for stat_of of lib.sh
    watch_stats.py watch MOUNT SECONDS   the sums hold at every moment of a busy daemon, and no count falls
    watch_stats.py opens MOUNT SECONDS   prints the median time of an open with its close, in microseconds,
                                         of experts 0/0 to 0/7
"""
import json
import os
import re
import statistics
import sys
import time

TEXT, COUNT, REAL, FLAG = "text", "count", "real", "flag"

DRIVE = {
    "number": COUNT, "path": TEXT, "role": TEXT, "state": TEXT, "bytes_read": COUNT, "reads": COUNT, "errors": COUNT,
    "in_flight": COUNT, "queue": {"demand": COUNT, "prefetch": COUNT, "promotion": COUNT}, "speed": COUNT,
    "gb_per_s": REAL, "read_ms": {"p50": REAL, "p99": REAL},
}
STATS = {
    "version": COUNT, "store": TEXT, "mode": TEXT, "io": TEXT, "policy": TEXT, "uptime_s": REAL,
    "memory": {"budget": COUNT, "needed": COUNT, "used": COUNT, "fixed": COUNT, "tables": COUNT, "threads": COUNT,
               "buffers": COUNT, "usage": COUNT, "moving": COUNT, "hot_drive": COUNT, "hot_store": COUNT, "capacity": COUNT,
               "available": COUNT, "experts": COUNT, "ready": COUNT, "evicted_but_mapped": COUNT, "pinned": COUNT,
               "slots": COUNT, "huge_pages": FLAG},
    "experts": {"total": COUNT, "resident": COUNT, "held": COUNT, "loading": COUNT, "pinned": COUNT,
                "mapped": COUNT},
    "opens": COUNT, "hits": COUNT, "misses": COUNT, "unkept": COUNT, "hit_rate": REAL,
    "opens_1m": COUNT, "hits_1m": COUNT, "hit_rate_1m": REAL, "bytes_read": COUNT,
    "load_ms": {"p50": REAL, "p95": REAL, "p99": REAL},
    "prefetch": {"asked": COUNT, "loaded": COUNT, "used": COUNT, "wasted": COUNT},
    "promotions": COUNT, "demotions": COUNT,
    "hot_dir": {"slots": COUNT, "experts": COUNT, "bytes": COUNT, "errors": COUNT},
    "usage": {"recording": FLAG, "flushes": COUNT, "errors": COUNT, "known": COUNT, "warm": COUNT, "warm_asked": COUNT},
    "evictions": COUNT, "recycled": COUNT, "errors": COUNT, "drives": [DRIVE],
}
# Metrics with a name that is not the member's own with a unit.
NAMES = {
    "uptime_s": "uptime_seconds", "experts.total": "experts", "hit_rate": "hit_ratio", "hit_rate_1m": "hit_ratio_1m",
    "bytes_read": "read_bytes_total", "hot_dir.bytes": "hot_dir_bytes",
    "drives.bytes_read": "drive_read_bytes_total", "drives.gb_per_s": "drive_busy_bytes_per_second",
    "drives.speed": "drive_speed_bytes_per_second", "drives.in_flight": "drive_in_flight",
}
COUNTERS = {
    "opens", "hits", "misses", "unkept", "prefetch.asked", "prefetch.loaded", "prefetch.used", "prefetch.wasted",
    "promotions", "demotions", "hot_dir.errors", "usage.flushes", "usage.errors", "evictions", "recycled", "errors",
    "bytes_read",
}


def fail(sentence):
    sys.exit("watch_stats: " + sentence)


def read(mount, name):
    with open(os.path.join(mount, ".expertfs", name), encoding="utf-8") as f:
        return f.read()


def check_shape(schema, value, where):
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            fail("%s is no object" % where)
        if set(schema) != set(value):
            fail("%s has other members: %s" % (where or "stats.json", sorted(set(schema) ^ set(value))))
        for name in schema:
            check_shape(schema[name], value[name], where + "." + name if where else name)
    elif isinstance(schema, list):
        if not isinstance(value, list):
            fail("%s is no array" % where)
        for i, item in enumerate(value):
            check_shape(schema[0], item, "%s[%d]" % (where, i))
    elif schema == TEXT and not (isinstance(value, str) and value):
        fail("%s is no text: %r" % (where, value))
    elif schema == FLAG and not isinstance(value, bool):
        fail("%s is no flag: %r" % (where, value))
    elif schema in (COUNT, REAL):
        if isinstance(value, bool) or not isinstance(value, int if schema == COUNT else float) or value < 0:
            fail("%s is no %s: %r" % (where, schema, value))


def members(schema, prefix=""):
    """Paths of all that is no object, with what they are; those of drives[] as drives.path."""
    for name, inner in schema.items():
        if isinstance(inner, dict):
            yield from members(inner, prefix + name + ".")
        elif isinstance(inner, list):
            yield from members(inner[0], prefix + name + ".")
        else:
            yield prefix + name, inner


def at(value, path):
    for name in path.split("."):
        value = value[name]
    return value


def documented(readme):
    """Members in the first column of the table below "## stats.json"."""
    with open(readme, encoding="utf-8") as f:
        section = f.read().split("\n## stats.json\n")[1].split("\n## ")[0]
    found = set()
    for row in re.findall(r"^\| ([^|]+) \|", section, re.M):
        first, *others = row.split(", ")
        prefix = first.rpartition(".")[0]
        for name in [first] + [prefix + "." + other if prefix else other for other in others]:
            found.add(name.replace("drives[].", "drives."))
    return found


def check_sums(s):
    m = s["memory"]
    if s["hits"] + s["misses"] != s["opens"]:
        fail("%(hits)d hits and %(misses)d misses are not %(opens)d opens" % s)
    if s["hits_1m"] > s["opens_1m"] or s["opens_1m"] > s["opens"] or s["unkept"] > s["misses"]:
        fail("the last minute has more than there was: %r" % s)
    if abs(s["hit_rate"] - (s["hits"] / s["opens"] if s["opens"] else 0)) > 1e-5:
        fail("hit_rate is %(hit_rate)g with %(hits)d of %(opens)d" % s)
    if abs(s["hit_rate_1m"] - (s["hits_1m"] / s["opens_1m"] if s["opens_1m"] else 0)) > 1e-5:
        fail("hit_rate_1m is %(hit_rate_1m)g with %(hits_1m)d of %(opens_1m)d" % s)
    terms = ("tables", "threads", "buffers", "usage", "moving", "hot_drive")
    if sum(m[t] for t in terms) != m["fixed"]:
        fail("the terms of the fixed part are not its sum: %r" % m)
    if m["fixed"] + m["experts"] + m["ready"] + m["evicted_but_mapped"] != m["used"]:
        fail("the memory in use is not its sum: %r" % m)
    if m["fixed"] <= m["budget"] < m["used"]:
        fail("more memory in use than allowed: %r" % m)
    if not m["fixed"] <= m["needed"] <= max(m["fixed"], m["budget"]):
        fail("more memory needed than allowed: %r" % m)
    if sum(d["bytes_read"] for d in s["drives"]) != s["bytes_read"]:
        fail("the drives do not add up to bytes_read")
    if s["experts"]["resident"] + s["experts"]["loading"] > s["experts"]["total"]:
        fail("more experts than there are: %r" % s["experts"])
    p = s["prefetch"]
    if not p["used"] + p["wasted"] <= p["loaded"] <= p["asked"]:
        fail("more prefetches used than loaded, or loaded than asked: %r" % p)
    for p in [s["load_ms"]] + [d["read_ms"] for d in s["drives"]]:
        if list(p.values()) != sorted(p.values()):
            fail("percentiles fall: %r" % p)


LABELS = r'([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"'


def parse_metrics(text):
    """The text format of Prometheus, strictly: {(name, labels): value} and {name: type}."""
    samples, types, helped, last = {}, {}, set(), None
    if not text.endswith("\n"):
        fail("metrics does not end with a newline")
    for line in text[:-1].split("\n"):
        comment = re.fullmatch(r"# (HELP|TYPE) ([a-z_][a-z0-9_]*) (\S.*)", line)
        if comment:
            what, name, rest = comment.groups()
            if what == "HELP":
                if name in helped:
                    fail("metric %s comes twice" % name)
                helped.add(name)
                last = name
            elif name != last or name in types or rest not in ("gauge", "counter", "summary"):
                fail("metrics: %s" % line)
            else:
                types[name] = rest
            continue
        sample = re.fullmatch(r"([a-z_][a-z0-9_]*)(?:\{(%s(?:,%s)*)\})? ([0-9.e+-]+)" % (LABELS, LABELS), line)
        if not sample or sample.group(1) != last or last not in types:
            fail("metrics: not a sample here: %s" % line)
        labels = tuple(sorted(re.findall(LABELS, sample.group(2) or "")))
        if (last, labels) in samples:
            fail("metrics: twice: %s" % line)
        samples[last, labels] = float(line.rpartition(" ")[2])
    if set(types) != {name for name, _ in samples}:
        fail("metrics without a sample: %s" % sorted(set(types) - {name for name, _ in samples}))
    for name, kind in types.items():
        if name.endswith("_total") != (kind == "counter"):
            fail("metrics: %s is a %s" % (name, kind))
    return samples, types


def escaped(text):
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def candidates(path, kind):
    """Names that a member may have as a metric, its label, and what its value is multiplied by."""
    drive = path.startswith("drives.")
    base = ("drive_" + path[7:] if drive else path).replace(".", "_")
    if path in NAMES:
        return [NAMES[path]], None, 1e9 if path.endswith("gb_per_s") else 1
    times = re.fullmatch(r"(?:drives\.)?(load|read)_ms\.p(\d+)", path)
    if times:
        name = ("drive_" if drive else "") + times.group(1) + "_seconds"
        return [name], ("quantile", "%g" % (int(times.group(2)) / 100)), 1e-3
    if ".queue." in path:
        return ["drive_queue_bytes"], ("class", path.rpartition(".")[2]), 1
    return [base, base + "_total", base + "_bytes"], None, 1


def check_metrics(before, after, text):
    """Each number of stats.json is there with the same value; of one that changed, one between."""
    samples, _ = parse_metrics(text)
    used = set()

    def look(path, kind, low, high, labels):
        names, label, factor = candidates(path, kind)
        key = tuple(sorted(labels + ([label] if label else [])))
        found = ["expertfs_" + n for n in names if ("expertfs_" + n, key) in samples]
        if len(found) != 1:
            fail("%s is %d metrics: %s %s" % (path, len(found), names, key))
        used.add((found[0], key))
        value = samples[found[0], key]
        # Both texts round: stats.json to 6 digits.
        slack = 2e-5 * abs(float(high) * factor)
        if not float(low) * factor - slack <= value <= float(high) * factor + slack:
            fail("%s is %r, but the metric %s %r" % (path, high, found[0], value))

    for path, kind in members(STATS):
        if kind in (COUNT, REAL, FLAG) and path != "version" and not path.startswith("drives."):
            look(path, kind, at(before, path), at(after, path), [])
    for b, a in zip(before["drives"], after["drives"]):
        labels = [("drive", str(a["number"])), ("path", escaped(a["path"]))]
        for path, kind in members({"drives": [DRIVE]}):
            if kind in (COUNT, REAL) and path != "drives.number":
                look(path, kind, at(b, path[7:]), at(a, path[7:]), labels)
        key = tuple(sorted(labels + [("role", a["role"]), ("state", a["state"])]))
        if samples.get(("expertfs_drive_state", key)) != 1:
            fail("no metric has the state of drive %d" % a["number"])
        used.add(("expertfs_drive_state", key))
    rest = [k for k in samples if k not in used]
    if [name for name, _ in rest] != ["expertfs_info"] or samples[rest[0]] != 1:
        fail("metrics that are not in stats.json: %r" % rest)
    info = dict(rest[0][1])
    for name in "store", "mode", "io", "policy":
        if info[name] != escaped(after[name]):
            fail("info says %s is %s" % (name, info[name]))


def check(mount, readme):
    before = json.loads(read(mount, "stats.json"))
    text = read(mount, "metrics")
    after = json.loads(read(mount, "stats.json"))
    check_shape(STATS, after, "")
    check_sums(after)
    check_metrics(before, after, text)
    said, real = documented(readme), {path for path, _ in members(STATS)} - {"member"}
    if real - said:
        fail("not in %s: %s" % (readme, sorted(real - said)))
    if said - real - {"member", "---"}:
        fail("in %s, but not in stats.json: %s" % (readme, sorted(said - real)))


def compare(mount, pairs):
    stats = json.loads(read(mount, "stats.json"))
    for pair in pairs:
        key, _, want = pair.partition("=")
        value = stats
        for name in key.split("."):
            value = value[int(name) if isinstance(value, list) else name]
        text = value if isinstance(value, str) else json.dumps(value)
        if text != want:
            fail("%s is %s, not %s" % (key, text, want))


def watch(mount, seconds):
    last = json.loads(read(mount, "stats.json"))
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        now = json.loads(read(mount, "stats.json"))
        check_shape(STATS, now, "")
        check_sums(now)
        for path in COUNTERS:
            if at(now, path) < at(last, path):
                fail("%s fell from %d to %d" % (path, at(last, path), at(now, path)))
        parse_metrics(read(mount, "metrics"))
        last = now
        n += 1
    print("%d samples, %d opens" % (n, last["opens"]))


def opens(mount, seconds):
    paths = [os.path.join(mount, "experts", "000", "%03d" % e) for e in range(8)]
    for path in paths:
        with open(path, "rb") as f:
            f.read()
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        for path in paths:
            start = time.perf_counter()
            os.close(os.open(path, os.O_RDONLY))
            times.append(time.perf_counter() - start)
    times.sort()
    print("%.1f" % (statistics.median(times) * 1e6))


if sys.argv[1] == "check":
    check(sys.argv[2], sys.argv[3])
elif sys.argv[1] == "is":
    compare(sys.argv[2], sys.argv[3:])
elif sys.argv[1] == "watch":
    watch(sys.argv[2], float(sys.argv[3]))
else:
    opens(sys.argv[2], float(sys.argv[3]))
