#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a store against the checkpoint it was made from, without any of the project's code.

    check_store.py STORE CHECKPOINT [--bits N] [--dense-bits N] [--group N] [--ignore REGEX]
                                    [--every N] [--copies N] [--parts N] [--coded BOUND]
    check_store.py --same STORE STORE
    check_store.py --spread STORE [--copies N] [--parts N]

Reads the safetensors, model.json, the catalog and the shards as their formats say, takes every
weight out of both and compares. --every N: of q8 and q4 matrices only every Nth row, since this is
slow. --coded: q8 and q4 weights are those of the checkpoint, off by so much of themselves at most (0:
not at all), instead of any nearest ones. --copies, --parts: so many each expert, and each copy of it,
must have. --same: two stores are equal byte for byte but for the store's id and what is computed from
it. --spread: the weights are left out, only how experts lie on the drives is looked at.
"""
import argparse
import array
import json
import os
import re
import sqlite3
import struct
import sys

HEAD = struct.Struct("<8sIIII16sQ")
RECORD = struct.Struct("<8sIIIIIIQQQQ16sQ")
BLOCK = 4096


def fail(text):
    sys.exit("check_store.py: " + text)


def need(condition, text):
    if not condition:
        fail(text)


def half(values):
    return struct.unpack("<%de" % len(values), struct.pack("<%dH" % len(values), *values))


class Checkpoint:
    def __init__(self, directory):
        self.directory, self.tensors = directory, {}
        self.config = json.load(open(os.path.join(directory, "config.json"), encoding="utf-8"))
        self.block = self.config.get("quantization_config", {}).get("weight_block_size", [128, 128])
        for name in sorted(os.listdir(directory)):
            if not name.endswith(".safetensors"):
                continue
            path = os.path.join(directory, name)
            with open(path, "rb") as f:
                size = struct.unpack("<Q", f.read(8))[0]
                header = json.loads(f.read(size))
            header.pop("__metadata__", None)
            for tensor, entry in header.items():
                self.tensors[tensor] = (path, 8 + size, entry)

    def raw(self, name):
        path, start, entry = self.tensors[name]
        first, last = entry["data_offsets"]
        with open(path, "rb") as f:
            f.seek(start + first)
            return f.read(last - first)

    def values(self, name):
        """All weights of a tensor as a flat sequence of floats, and its shape."""
        entry, raw = self.tensors[name][2], self.raw(name)
        dtype, shape = entry["dtype"], entry["shape"]
        if dtype == "F32":
            return array.array("f", raw), shape
        if dtype == "F16":
            return struct.unpack("<%de" % (len(raw) // 2), raw), shape
        if dtype == "BF16":
            wide = bytearray(2 * len(raw))
            wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
            return array.array("f", bytes(wide)), shape
        need(dtype == "F8_E4M3", "%s is of type %s" % (name, dtype))
        return self.scaled(raw, shape, self.values(name + "_scale_inv")[0]), shape

    def scaled(self, raw, shape, scales):
        table = []
        for b in range(256):
            e, m = b >> 3 & 15, b & 7
            v = (8 + m) * 2.0 ** (e - 10) if e else m * 2.0 ** -9
            table.append(-v if b & 128 else v)
        rows, cols, out = shape[-2], shape[-1], array.array("f")
        high, wide = -(-rows // self.block[0]), -(-cols // self.block[1])
        for i in range(len(raw) // cols):
            expert, row = divmod(i, rows)
            s = (expert * high + row // self.block[0]) * wide
            line = raw[i * cols:(i + 1) * cols]
            out.extend(table[b] * scales[s + c // self.block[1]] for c, b in enumerate(line))
        return out

    def matrix(self, layer, expert, which):
        p = "model.layers.%d.mlp.experts." % layer
        name = p + "%d.%s_proj.weight" % (expert, which)
        if name in self.tensors:
            return self.values(name)
        values, shape = self.fused(p + ("down_proj" if which == "down" else "gate_up_proj"))
        count, rows, cols = shape
        first, rows = {"gate": (0, rows // 2), "up": (rows // 2, rows // 2), "down": (0, rows)}[which]
        at = (expert * shape[1] + first) * cols
        return values[at:at + rows * cols], [rows, cols]

    def fused(self, name):
        if getattr(self, "last", None) != name:
            self.last, self.last_values = name, self.values(name)
        return self.last_values


def check_exact(what, want, data, kind):
    if kind == "f32":
        need(data == array.array("f", want).tobytes(), what + " differs from the checkpoint")
        return
    out = array.array("H")
    for (bits,) in struct.iter_unpack("<I", array.array("f", want).tobytes()):
        rest, bits = bits & 0xffff, bits >> 16
        out.append(bits + (rest > 0x8000 or (rest == 0x8000 and bits & 1)))
    need(data == out.tobytes(), what + " is not the checkpoint rounded to bf16")


def check_coded(what, weights, codes, scale, bound):
    """Integers were kept; of a scale below 2^-14, float16 has multiples of 2^-24."""
    for w, c in zip(weights, codes):
        allowed = max(bound * abs(w), abs(c) * 2 ** -25) if bound else 0
        need(abs(w - scale * c) <= allowed, what + ": not the weight of the checkpoint")


def check_group(what, weights, codes, scale, kind):
    """The codes must be the nearest ones, the scale no worse than the plain choices."""
    top = max(abs(w) for w in weights)
    if kind == "q8":
        need(abs(scale - top / 127) <= top / 127 * 2 ** -10.9 + 2 ** -25, what + ": a wrong scale")
    low, high = (-127, 127) if kind == "q8" else (-8, 7)
    error = 0.0
    for w, c in zip(weights, codes):
        miss = abs(w - scale * c)
        best = min(max(w / scale if scale else 0, low), high)
        need(miss <= abs(w - scale * best) + abs(scale) * 0.5001, what + ": a code is not the nearest")
        error += miss * miss
    if kind == "q4" and top > 0:
        biggest = max(weights, key=abs)
        for plain in (biggest / -8, biggest / 7):
            naive = sum((w - plain * min(max(round(w / plain), -8), 7)) ** 2 for w in weights)
            need(error <= naive * 1.01 + 1e-12, what + ": the scale is worse than a plain one")


def check_matrix(what, want, shape, data, kind, args):
    rows, cols = (1, shape[0]) if len(shape) == 1 else shape
    need(len(want) == rows * cols, what + " has another size than in the checkpoint")
    pad = lambda n: (n + 63) // 64 * 64
    if kind in ("f32", "bf16"):
        used = len(want) * (4 if kind == "f32" else 2)
        need(len(data) == pad(used) and not any(data[used:]), what + ": wrong size or filling")
        check_exact(what, want, data[:used], kind)
        return
    group = args.group
    groups = -(-cols // group)
    block = 16
    stored = -(-rows // block) * block
    row_bytes = groups * group // (1 if kind == "q8" else 2)
    start = pad(stored * row_bytes)
    need(len(data) == start + pad(stored * groups * 2), what + ": wrong size")
    scales = half(struct.unpack("<%dH" % (stored * groups), data[start:start + stored * groups * 2]))
    # The last block is filled up with rows of zero bytes.
    for r in range(rows, stored):
        at = (r - r % block) * row_bytes + r % block * 4
        need(not any(data[at + i] for i in range(0, block * row_bytes - r % block * 4, block * 4)) and
             not any(scales[(r - r % block) * groups + r % block::block]),
             what + ": the filling of the last block is not zero")
    # From another row each time, so that all parts of a matrix get their turn.
    for r in range(sum(map(ord, what)) % min(args.every, rows), rows, args.every):
        for g in range(groups):
            # 4 bytes of this row, 4 of each other row of the block, and so on.
            at = (r - r % block) * row_bytes + g * block * row_bytes // groups + r % block * 4
            raw = b"".join(data[at + i:at + i + 4]
                           for i in range(0, block * row_bytes // groups, block * 4))
            if kind == "q8":
                codes = struct.unpack("%db" % group, raw)
            else:
                codes = []
                for i in range(0, len(raw), 4):
                    codes += [(b & 15) - 8 for b in raw[i:i + 4]]
                    codes += [(b >> 4) - 8 for b in raw[i:i + 4]]
            n = min(group, cols - g * group)
            first = r * cols + g * group
            need(not any(codes[n:]), what + ": codes beyond the last column")
            place = "%s, row %d, group %d" % (what, r, g)
            scale = scales[((r - r % block) // block * groups + g) * block + r % block]
            if args.coded is None:
                check_group(place, want[first:first + n], codes[:n], scale, kind)
            else:
                check_coded(place, want[first:first + n], codes[:n], scale, args.coded)


def type_of(bits):
    return {4: "q4", 8: "q8", 16: "bf16", 32: "f32"}[bits]


def check_entry(entry, kind, group, what):
    need(entry["type"] == kind, "%s is %s, not %s" % (what, entry["type"], kind))
    need(entry.get("group") == (group if kind[0] == "q" else None), what + ": a wrong group")
    need(entry["offset"] % 64 == 0, what + " is not aligned")


PLAIN = re.compile(r"norm|bias|mlp\.gate\.weight|weights_proj")


def check_dense(store, model, ck, args):
    dense, seen, end = model["dense"], set(), 0
    with open(os.path.join(store, dense["file"]), "rb") as f:
        data = f.read()
    need(len(data) == dense["bytes"], "dense.bin has another size than model.json says")
    for t in sorted(dense["tensors"], key=lambda t: t["offset"]):
        name = t["name"]
        need(name in ck.tensors, name + " is not in the checkpoint")
        need(t["offset"] == end, name + " does not follow the one before")
        end += t["bytes"]
        plain = bool(PLAIN.search(name)) and "eh_proj" not in name
        check_entry(t, "f32" if plain else type_of(args.dense_bits), args.group, name)
        values, shape = ck.values(name)
        need(shape == t["shape"], name + " has another shape")
        check_matrix(name, values, shape, data[t["offset"]:end], t["type"], args)
        seen.add(name)
    need(end == len(data), "dense.bin has bytes behind the last tensor")
    for name in ck.tensors:
        if ".mlp.experts." not in name and not name.endswith("_scale_inv") and \
                not (args.ignore and re.search(args.ignore, name)):
            need(name in seen, name + " is missing in the store")


def read_shard(path, drive, drives, store_id):
    """(layer, expert, copy, part) -> what extents() of the catalog has, and the number of parts"""
    out = {}
    size = os.path.getsize(path)
    with open(path, "rb") as f:
        block = f.read(BLOCK)
        magic, version, own, count, pad, ident, _ = HEAD.unpack(block[:HEAD.size])
        need((magic, version, own, count, pad) == (b"EXFSHRD1", 1, drive, drives, 0),
             path + " has a wrong head")
        need(ident == store_id, path + " has another store id than the catalog")
        need(not any(block[HEAD.size:]), path + ": the head block is not filled with zeros")
        at = BLOCK
        while at < size:
            f.seek(at)
            block = f.read(BLOCK)
            r = RECORD.unpack(block[:RECORD.size])
            magic, layer, expert, part, parts, copy, generation, whole, first, length, check, ident, _ = r
            need((magic, generation) == (b"EXFSREC1", 0) and part < parts and
                 first + length <= whole and first % BLOCK == 0,
                 "%s: no whole record at %d" % (path, at))
            need(ident == store_id and not any(block[RECORD.size:]),
                 "%s: a wrong record at %d" % (path, at))
            key = layer, expert, copy, part
            need(key not in out, "%s holds %d/%d, copy %d, part %d twice" % ((path,) + key))
            out[key] = ((drive, at + BLOCK, length, first, whole, check), parts)
            end = at + BLOCK + length
            at = (end + BLOCK - 1) // BLOCK * BLOCK
            f.seek(end)
            need(not any(f.read(at - end)), "%s: no zeros behind %d/%d" % (path, layer, expert))
    need(at == size, path + " ends within a record")
    return out


def read_catalog(store):
    """store id, [path of a shard], (layer, expert, copy, part) -> (drive, offset, length, first byte
    in the expert, bytes of the expert, checksum)"""
    uri = "file:%s?mode=ro&immutable=1" % os.path.join(store, "catalog.db")
    db = sqlite3.connect(uri, uri=True)
    meta = dict(db.execute("SELECT key, value FROM meta"))
    drives = list(db.execute("SELECT id, path, bytes FROM drives ORDER BY id"))
    need([d[0] for d in drives] == list(range(len(drives))), "the drives are not numbered from 0")
    with open(os.path.join(store, "shards"), encoding="utf-8") as f:
        need([d[1] for d in drives] == f.read().splitlines(), "`shards` lists other shards")
    paths = [os.path.join(store, d[1]) for d in drives]
    for path, d in zip(paths, drives):
        need(os.path.getsize(path) == d[2], path + " has another size than the catalog says")
    extents = {}
    for layer, expert, copy, part, whole, drive, offset, length, first, check in db.execute(
            "SELECT layer, expert, copy, part, expert_bytes, drive, offset, length, expert_offset,"
            " xxh3 FROM extents"):
        extents[layer, expert, copy, part] = (drive, offset, length, first, whole,
                                              check & (1 << 64) - 1)
    db.close()
    return bytes.fromhex(meta["store_id"]), paths, extents


def read_copies(paths, extents, args):
    """(layer, expert) -> its bytes. All copies must be the same, cover it once, and share no drive."""
    copies, files = {}, [open(p, "rb") for p in paths]
    for (layer, expert, copy, part), x in sorted(extents.items()):
        drive, offset, length, first, whole, _ = x
        of = copies.setdefault((layer, expert), [])
        if part == 0:
            need(copy == len(of), "%d/%d: copies are not numbered from 0" % (layer, expert))
            of.append((bytearray(), []))
        data, drives = of[copy]
        need(part == len(drives) and first == len(data),
             "%d/%d, copy %d: part %d does not follow the one before" % (layer, expert, copy, part))
        files[drive].seek(offset)
        data += files[drive].read(length)
        drives.append(drive)
    out = {}
    for (layer, expert), of in copies.items():
        what = "%d/%d" % (layer, expert)
        used = [d for _, drives in of for d in drives]
        need(len(set(used)) == len(used), what + " is on one drive twice")
        need(all(data == of[0][0] for data, _ in of), what + " has different copies")
        need(len(of[0][0]) == whole_of(extents, layer, expert), what + " is not there whole")
        if args.copies:
            need(len(of) == args.copies, "%s has %d copies" % (what, len(of)))
        if args.parts:
            need(all(len(drives) == args.parts for _, drives in of), what + " has other parts")
        out[layer, expert] = bytes(of[0][0])
    for f in files:
        f.close()
    return out


def whole_of(extents, layer, expert):
    return extents[layer, expert, 0, 0][4]


def check_records(paths, store_id, extents):
    found = {}
    for i, path in enumerate(paths):
        for key, (x, parts) in read_shard(path, i, len(paths), store_id).items():
            need(key not in found, "%d/%d, copy %d, part %d is on two drives" % key)
            found[key] = x
            last = sum(1 for p in range(parts + 1) if key[:3] + (p,) in extents)
            need(last == parts, "%d/%d, copy %d has other parts than the catalog says" % key[:3])
    need(found == extents, "the shards do not hold what the catalog says")


def check_evenness(extents, layers, drives):
    """What a layer asks for at once should keep all drives busy. Of whole experts, as on equal drives."""
    if any(copy or part for _, _, copy, part in extents):
        return
    for layer in layers:
        share = [sum(1 for k, x in extents.items() if k[0] == layer and x[0] == d)
                 for d in range(drives)]
        need(max(share) - min(share) <= 1, "layer %d is spread over the drives unevenly" % layer)


def check_experts(store, model, ck, args):
    store_id, paths, extents = read_catalog(store)
    check_records(paths, store_id, extents)
    experts = read_copies(paths, extents, args)
    layouts = {}
    for layout in model["experts"]["layouts"]:
        for layer in layout["layers"]:
            need(layer not in layouts, "layer %d has two layouts" % layer)
            layouts[layer] = layout
    count, last = model["experts"]["count"], ck.config["num_hidden_layers"]
    found = {int(m.group(1)) for m in (re.match(r"model\.layers\.(\d+)\.mlp\.experts\.", n)
                                       for n in ck.tensors) if m}
    need(found == set(layouts), "the layers with experts are %s, not %s" % (set(layouts), found))
    need(set(experts) == {(l, e) for l in layouts for e in range(count)}, "other experts")
    for (layer, expert), data in sorted(experts.items()):
        layout = layouts[layer]
        need(len(data) == layout["bytes"], "%d/%d has another size than its layout" % (layer, expert))
        end = 0
        need([m["name"] for m in layout["matrices"]] == ["gate", "up", "down"], "wrong matrices")
        for m in layout["matrices"]:
            what = "layer %d, expert %d, %s" % (layer, expert, m["name"])
            bits = max(args.bits, 8) if layer >= last else args.bits
            check_entry(m, type_of(bits), args.group, what)
            need(m["offset"] == end, what + " does not follow the one before")
            end += m["bytes"]
            values, shape = ck.matrix(layer, expert, m["name"])
            need(shape == m["shape"], what + " has another shape")
            check_matrix(what, values, shape, data[m["offset"]:end], m["type"], args)
        need(end == len(data), "layer %d, expert %d has bytes behind its matrices" % (layer, expert))
    check_evenness(extents, layouts, len(paths))


def check_json(store, model, ck):
    read = lambda path: open(path, "rb").read()
    need(model["format"] == "expertfs-model" and model["version"] == 2, "a wrong format")
    need(model["architecture"] == ck.config["model_type"], "a wrong architecture")
    need(model["config"] == ck.config, "model.json has another config than the checkpoint")
    need(read(os.path.join(ck.directory, "config.json")) in read(os.path.join(store, "model.json")),
         "config.json does not stand in model.json as it is")
    need(read(os.path.join(ck.directory, "tokenizer.json")) ==
         read(os.path.join(store, "tokenizer.json")), "tokenizer.json differs")
    ids = []
    for name in ("config.json", "generation_config.json"):
        path = os.path.join(ck.directory, name)
        value = json.load(open(path, encoding="utf-8")).get("eos_token_id") \
            if os.path.exists(path) else None
        for i in value if isinstance(value, list) else [] if value is None else [value]:
            if i not in ids:
                ids.append(i)
    need(model["eos_token_ids"] == ids, "eos_token_ids are %s" % model["eos_token_ids"])
    files = {"model.json", "tokenizer.json", "dense.bin", "catalog.db", "shards"}
    files |= {os.path.basename(p) for p in read_catalog(store)[1]
              if os.path.dirname(os.path.realpath(p)) == os.path.realpath(store)}
    need(set(os.listdir(store)) == files, "the store holds %s" % sorted(os.listdir(store)))


def check(args):
    store, directory = args.folders
    ck = Checkpoint(directory)
    model = json.load(open(os.path.join(store, "model.json"), encoding="utf-8"))
    check_json(store, model, ck)
    check_dense(store, model, ck, args)
    check_experts(store, model, ck, args)


def same(a, b):
    for name in ("model.json", "tokenizer.json", "dense.bin"):
        need(open(os.path.join(a, name), "rb").read() == open(os.path.join(b, name), "rb").read(),
             "%s differs between %s and %s" % (name, a, b))
    (id_a, paths_a, extents_a), (id_b, paths_b, extents_b) = read_catalog(a), read_catalog(b)
    need(id_a != id_b, "two packs have one store id")
    need(extents_a == extents_b and len(paths_a) == len(paths_b), "the catalogs differ")
    for i, (x, y) in enumerate(zip(paths_a, paths_b)):
        # The checksum of a head is computed from the id as well.
        data = [bytearray(open(p, "rb").read()) for p in (x, y)]
        heads = [e[1] - BLOCK for e in extents_a.values() if e[0] == i]
        for d in data:
            d[24:HEAD.size] = bytes(HEAD.size - 24)
            for at in heads:
                d[at + 64:at + RECORD.size] = bytes(RECORD.size - 64)
        need(data[0] == data[1], "%s and %s differ" % (x, y))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--same", action="store_true")
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--dense-bits", type=int, default=8)
    parser.add_argument("--group", type=int, default=64)
    parser.add_argument("--ignore")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--copies", type=int)
    parser.add_argument("--parts", type=int)
    parser.add_argument("--coded", type=float)
    args = parser.parse_args()
    if len(args.folders) != (1 if args.spread else 2):
        parser.error("a wrong number of folders")
    if args.same:
        same(*args.folders)
    elif args.spread:
        store_id, paths, extents = read_catalog(args.folders[0])
        check_records(paths, store_id, extents)
        read_copies(paths, extents, args)
    else:
        check(args)


main()
