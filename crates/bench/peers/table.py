"""Prints the rows of a peers.jsonl as short tables. Rows that differ in their number of blocks alone are one: the best."""

import json
import re
import sys


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def time(value):
    return "-" if value is None else f"{value:.2f}" if value < 1000 else f"{value:.0f}"


def best(rows):
    """One row a name, in the order in which they came; wrong ones are kept."""
    families, wrong = {}, []
    for row in rows:
        if not row["verified"] or row["us"] is None:
            wrong.append(row)
            continue
        key = (row["peer"], re.sub(r"\d+ blocks of \d+", "N blocks", row["row"]), row.get("compute", 0))
        if key not in families or row["us"] < families[key]["us"]:
            families[key] = row
    return list(families.values()), wrong


def main(path):
    rows = read(path)
    if not rows:
        print("no rows")
        return 1
    failed = []
    for mode in ("exchange", "share"):
        chosen, wrong = best([row for row in rows if row["mode"] == mode])
        failed += wrong
        if not chosen:
            continue
        print(f"\n{mode}, {chosen[0]['ranks']} ranks: us of the slowest rank, median [least, most]; enqueue and CPU us\n")
        for row in sorted(chosen, key=lambda row: row["us"]):
            name = row["row"] + (", compute" if row.get("compute") else "")
            span = f"[{time(row['min'])}, {time(row['max'])}]"
            print(f"{row['us']:9.2f} {span:18} {time(row['enqueue_us']):>7} {time(row['cpu_us']):>7}  {row['peer']}: {name}")
    for mode in ("pair", "floor"):
        chosen = [row for row in rows if row["mode"] == mode]
        failed += [row for row in chosen if not row["verified"]]
        chosen = [row for row in chosen if row["verified"]]
        if chosen:
            print(f"\n{mode}: us (GB/s)\n")
        sized = {}
        for row in chosen:
            if "bytes" not in row:
                print(f"{row['us']:9.2f}  {row['row']}")
            else:
                sized.setdefault(f"{row['peer']}: {row['row']}", []).append(row)
        for name, sizes in sized.items():
            print(f"  {name}")
            print("    " + "  ".join(f"{int(row['bytes'])}: {time(row['us'])} ({row['gbps']:.4g})" for row in sizes))
    failed += [row for row in rows if row["mode"] == "program"]
    for row in failed:
        print(f"FAILED {row['mode']} {row['peer']}: {row['row']}: {row['note']}")
    return 1 if failed else 0


sys.exit(main(sys.argv[1]))
