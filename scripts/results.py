"""Puts the results of scripts/gpu.sh into one file, results.json, and prints a short table of them.

results.py OUT NAME=VALUE...

OUT/steps.tsv has a line a step (name, ranks, status, seconds, command), OUT/steps/NAME.json its rows, or NAME.rows those of
collectives, OUT/steps/timeline.json a timeline. Ends with 1 if a step or a row failed, or if a step that went well left nothing.
"""

import json
import os
import sys


def read(path):
    """The JSON in a file; None where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def collect(out, about):
    about["gpus"] = int(about["gpus"])
    steps, rows, timelines, collectives = [], [], [], []
    with open(os.path.join(out, "steps.tsv"), encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t", 4) for line in file]
    for name, ranks, status, seconds, command in lines:
        step = {"name": name, "gpus": int(ranks), "status": status, "seconds": int(seconds), "command": command}
        found = read(os.path.join(out, "steps", name + ".json"))
        measures = "--json " in command or "--timeline " in command
        # Those of collectives have columns of their own.
        own = read(os.path.join(out, "steps", name + ".rows"))
        collectives += own or []
        if found is None and own is None and measures and status == "ok":
            step["status"] = "FAILED (it left no rows)"
        if found is not None and name == "timeline":
            # If ranks share GPUs, the pictures name the number of GPUs.
            timelines.append({"gpus": min(int(ranks), about["gpus"]), "spans": found})
        elif found is not None:
            rows += [{"step": name, **row} for row in found]
        steps.append(step)
    return {**about, "steps": steps, "rows": rows, "timelines": timelines, "collectives": collectives}


def name_of(row):
    return row["variant"] if row["who"] == "tidegate" else row["who"] + ": " + row["variant"]


def time(value):
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def summary(results):
    """A line a step: the times of ours, and the best of each other library."""
    for step in results["steps"]:
        rows = [row for row in results["rows"] if row["step"] == step["name"] and not row["failed"] and row["us_max"] is not None]
        if not rows:
            continue
        # Sizes of a pair: the least and the greatest are enough here.
        if rows[0]["benchmark"] == "pair":
            sizes = sorted({row["bytes"] for row in rows if row["who"] == "tidegate"})
            rows = [row for row in rows if row["bytes"] in (sizes[0], sizes[-1]) and row["who"] == "tidegate"]
        best = {}
        for row in rows:
            key = name_of(row) if row["who"] == "tidegate" else row["who"]
            if row["benchmark"] != "floor" and (key not in best or row["us_max"] < best[key]):
                best[key] = row["us_max"]
        print(f"{step['name']:20} " + "  ".join(f"{key} {time(us)}" for key, us in best.items()))


# How many times as long as `st` the paper's two other variants take (arXiv 2306.15773): on one node, and on eight.
PAPER = {"share": ("one node", 1.36, 1.61), "nodes": ("eight nodes", 1.23, 0.89)}


def paper(results):
    """Lines that compare `rma` and `p2p` with `st`, beside the paper's figures."""
    lines = []
    for step in results["steps"]:
        us = {row["variant"]: row["us_max"] for row in results["rows"] if row["step"] == step["name"] and row["who"] == "tidegate" and not row["failed"]}
        where = PAPER.get(step["name"].split("-")[0])
        if where and all(us.get(variant) for variant in ("st", "rma", "p2p")):
            name, rma, p2p = where
            lines.append(f"{step['name']:20} {us['st']:8.2f} {us['rma'] / us['st']:8.2f} {us['p2p'] / us['st']:8.2f}   {name}: {rma:.2f} {p2p:.2f}")
    return lines and [f"{'':20} {'st, us':>8} {'rma/st':>8} {'p2p/st':>8}   the paper: rma/st, p2p/st", *lines]


def main(out, about):
    results = collect(out, dict(pair.split("=", 1) for pair in about))
    path = os.path.join(out, "results.json")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(results, file)
        file.write("\n")
    os.replace(path + ".new", path)
    print("us of the slowest rank, median of the rounds; of each other library the best form\n")
    summary(results)
    print("", *paper(results), "", sep="\n")
    bad = [step for step in results["steps"] if step["status"] != "ok"]
    for step in bad:
        print(f"{step['status'].upper() if step['status'] == 'not run' else step['status']}: {step['name']}")
    wrong = [row for row in results["rows"] if row["failed"]]
    for row in wrong:
        print(f"FAILED {row['step']}: {name_of(row)}: {row['failure']}")
    done = len(results["steps"]) - len(bad)
    print(f"{done} of {len(results['steps'])} steps went well, {len(wrong)} rows failed: {path}")
    return 1 if bad or wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
