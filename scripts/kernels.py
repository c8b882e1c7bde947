"""Makes rows and a table of what the programs of scripts/kernels.sh have printed.

kernels.py OUT

reads OUT/logs/device-*.log, writes OUT/steps/device-*.json for scripts/results.py, and prints a line for each size, scope and
number of blocks, with the time of each library. A ratio is theirs / ours. The programs of other libraries print a JSON object a
row; ours, `benches/inside.rs`, prints columns.
"""

import json
import os
import re
import sys

OURS = "tidegate"
# What, scope, bytes, us, GB/s, multiprocessors.
COLUMNS = re.compile(r"(\S.*?)\s{2,}(thread|warp|block)\s+(\d+)\s+([\d.]+)\s+([\d.]+)\s+(\d+)$")


def rows(path):
    """The rows of a program. Ours compares all data, and ends where a byte differs."""
    found = []
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            columns = COLUMNS.match(line.rstrip())
            if line.startswith("{"):
                found.append(json.loads(line))
            elif columns:
                what, scope, size, us, gbps, blocks = columns.groups()
                us, plural = float(us), "block" if blocks == "1" else "blocks"
                found.append({
                    "peer": OURS, "row": f"{what}, {scope}, {blocks} {plural}", "bytes": int(size), "scope": scope, "sms": int(blocks),
                    "us": us, "min": None, "max": None, "gbps": float(gbps), "verified": True, "note": "",
                })  # fmt: skip
    return found


def result(row):
    """The row as results.json has it."""
    failed = not row["verified"] or row["us"] is None
    return {
        "who": row["peer"],
        "variant": row["row"],
        "benchmark": "device",
        "bytes": row.get("bytes"),
        "scope": row.get("scope"),
        "multiprocessors": row.get("sms"),
        "gbps": row.get("gbps"),
        "us_max": row["us"],
        "us_least": row["min"],
        "us_most": row["max"],
        "failed": failed,
        "failure": (row["note"] or "the data is wrong") if failed else None,
    }


def table(found):
    who = sorted({row["who"] for row in found}, key=lambda name: (name != OURS, name))
    by = {}
    for row in found:
        # The name ends with the scope and the blocks.
        key = (row["variant"].rsplit(", ", 2)[0], row["bytes"] or 0, row["scope"] or "", row["multiprocessors"] or 0)
        by.setdefault(key, {})[row["who"]] = row
    head = f"{'':34} {'bytes':>8} {'scope':>7} {'SMs':>4}"
    print(head + "".join(f" {name + ', us':>14} {'GB/s':>7}" for name in who) + ("   theirs / ours" if OURS in who else ""))
    for (what, size, scope, blocks), of in sorted(by.items(), key=lambda item: (item[0][0], item[0][2], item[0][3], item[0][1])):
        line = f"{what:34} {size:8.0f} {scope:>7} {blocks:4.0f}"
        for name in who:
            row = of.get(name)
            good = row is not None and not row["failed"]
            line += f" {row['us_max']:14.3f} {row['gbps'] or 0:7.2f}" if good else f" {'FAILED' if row else '-':>14} {'':7}"
        times = [row["us_max"] for name, row in of.items() if name != OURS and not row["failed"]]
        ours = of.get(OURS)
        if ours and times and not ours["failed"]:
            line += f"   {min(times) / ours['us_max']:.2f}"
        print(line)


def main(out):
    logs = os.path.join(out, "logs")
    found = []
    for name in sorted(os.listdir(logs)):
        if name.startswith("device-") and name.endswith(".log"):
            new = [result(row) for row in rows(os.path.join(logs, name))]
            with open(os.path.join(out, "steps", name.removesuffix(".log") + ".json"), "w", encoding="utf-8") as file:
                json.dump(new, file)
            found += new
    table(found)


if __name__ == "__main__":
    main(sys.argv[1])
