"""What the programs of others work on: generated, the same bytes on every machine.

Used by `programs`. Each writer fills one file or folder of the inputs; all are made anew
when this file changes, so that no run meets the inputs of another version.
"""

import hashlib
import json
import random
import shutil
import threading
from pathlib import Path

WORDS = "the quick brown fox jumps over a lazy dog while many small objects come and go in memory".split()


_MAKING = threading.Lock()


def make_all(folder: Path) -> Path:
    """Fills `folder` once and returns it; lanes that ask at the same time wait for the first."""
    with _MAKING:
        return _make_all(folder)


def _make_all(folder: Path) -> Path:
    wanted = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    stamp = folder / "made-by"
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for write in (_templates, _functions, _generics, _queries, _corpus, _records, _strings, _buffers, _pages):
            write(folder)
        stamp.write_text(wanted)
    return folder


def _templates(folder: Path) -> None:
    """C++ that is mostly headers and instantiations, as C++ is."""
    headers = ["map", "string", "unordered_map", "vector", "functional", "algorithm"]
    lines = [f"#include <{h}>" for h in headers]
    for i in range(4):
        lines += [
            f"struct key{i} {{ int a; std::string b; bool operator<(const key{i} &o) const {{ return a < o.a; }} }};",
            f"std::map<key{i}, std::vector<std::pair<std::string, key{i}>>> table{i};",
            f"std::size_t use{i}(const std::string &text) {{",
            f"    table{i}[key{i}{{{i}, text}}].emplace_back(text, key{i}{{1, text}});",
            f"    std::vector<key{i}> all; for (auto &[k, v] : table{i}) all.push_back(k);",
            "    std::sort(all.begin(), all.end()); return all.size() + text.size();",
            "}",
        ]
    (folder / "templates.cc").write_text("\n".join(lines) + "\n")


def _functions(folder: Path) -> None:
    drawn = random.Random(1)
    lines = ["#include <stdio.h>", "#include <string.h>"]
    for i in range(36):
        body = "".join(
            f"    if (x % {drawn.randrange(2, 99)} == {k}) y += table[(x * {drawn.randrange(3, 999)}) & 255] ^ (y << {k % 7});\n"
            for k in range(24)
        )
        lines.append(
            f"static unsigned table{i}[256];\nunsigned f{i}(unsigned x)\n{{\n    unsigned y = x, *table = table{i};\n{body}    return y;\n}}"
        )
    (folder / "functions.c").write_text("\n".join(lines) + "\n")


def _generics(folder: Path) -> None:
    lines = ["use std::collections::{BTreeMap, HashMap};"]
    for i in range(6):
        lines += [
            f"#[derive(Clone, Debug, PartialEq, PartialOrd, Default)] pub struct S{i} {{ a: Vec<String>, b: Option<Box<S{i}>>, c: BTreeMap<u32, String> }}",
            f"impl S{i} {{ pub fn fold(&self) -> HashMap<String, usize> {{ self.a.iter().cloned().chain(self.c.values().cloned())",
            f"  .filter(|s| s.len() > {i}).map(|s| {{ let n = s.len(); (s, n) }}).collect() }} }}",
            f'pub fn show{i}(s: &[S{i}]) -> String {{ s.iter().map(|x| format!("{{:?}} {{}}", x, x.fold().len())).collect::<Vec<_>>().join(",") }}',
        ]
    (folder / "generics.rs").write_text("\n".join(lines) + "\n")


def _queries(folder: Path) -> None:
    (folder / "queries.sql").write_text(
        """CREATE TABLE item(id INTEGER PRIMARY KEY, kind TEXT, name TEXT, price REAL);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000)
INSERT INTO item SELECT i, 'kind' || (i * 7919 % 997), printf('name %d of a row %x', i, i * 2654435761), i * 37 % 1009 FROM n;
CREATE INDEX by_kind ON item(kind, price);
SELECT kind, count(*), avg(price), group_concat(substr(name, 1, 8)) FROM item GROUP BY kind ORDER BY 3;
SELECT a.kind, count(*) FROM item a JOIN item b ON a.id = b.id + 1 WHERE a.price > b.price GROUP BY a.kind;
UPDATE item SET name = name || ' changed' WHERE id % 3 = 0;
DELETE FROM item WHERE id % 5 = 0;
SELECT json_group_array(json_object('id', id, 'name', name)) FROM item WHERE id < 40000;
"""
    )


def _corpus(folder: Path) -> None:
    drawn = random.Random(2)
    for i in range(1500):
        place = folder / "corpus" / f"d{i % 40}"
        place.mkdir(parents=True, exist_ok=True)
        lines = (f"{drawn.choice(WORDS)}-{drawn.randrange(999)} " + " ".join(drawn.choices(WORDS, k=10)) for _ in range(300))
        (place / f"f{i}.txt").write_text("\n".join(lines) + "\n")


def _records(folder: Path) -> None:
    drawn = random.Random(3)
    records = [
        {
            "id": i,
            "kind": drawn.choice(WORDS),
            "tags": drawn.choices(WORDS, k=5),
            "position": {"x": drawn.random(), "y": drawn.random()},
            "text": " ".join(drawn.choices(WORDS, k=12)),
        }
        for i in range(22000)
    ]
    (folder / "records.json").write_text(json.dumps(records))


def _strings(folder: Path) -> None:
    (folder / "strings.rb").write_text(
        """table = Hash.new { |h, k| h[k] = [] }
250_000.times do |i|
  table["key number #{i % 5000}"] << "value #{i} " * 3
  table.delete("key number #{(i * 31) % 5000}") if i % 400 == 0
end
puts table.values.flatten.map { |s| s.sub(/value (\\d+)/, 'v\\1').split(" ").length }.sum
"""
    )


def _buffers(folder: Path) -> None:
    (folder / "buffers.js").write_text(
        """const zlib = require('zlib');
let kept = [], sum = 0;
for (let i = 0; i < 6000; i++) {
  const text = JSON.stringify({ i, list: Array.from({ length: 80 }, (_, k) => 'item ' + (k * i) % 977) });
  const packed = zlib.deflateSync(Buffer.from(text), { level: 1 });
  kept.push(Buffer.alloc(packed.length + (i % 50) * 1000, 1));
  if (kept.length > 500) kept = kept.slice(250);
  sum += zlib.inflateSync(packed).length;
}
console.log(sum);
"""
    )


def _pages(folder: Path) -> None:
    drawn = random.Random(4)
    lines = ["%!PS", "/Times-Roman findfont 9 scalefont setfont"]
    for page in range(30):
        for row in range(70):
            text = " ".join(drawn.choices(WORDS, k=14))
            lines.append(f"40 {780 - 10 * row} moveto ({text}) show")
        for _ in range(300):
            x, y, r = drawn.randrange(600), drawn.randrange(800), drawn.randrange(3, 60)
            lines.append(f"newpath {x} {y} {r} 0 360 arc {drawn.random():.2f} setgray stroke")
        lines.append("0 setgray showpage")
    (folder / "pages.ps").write_text("\n".join(lines) + "\n")
