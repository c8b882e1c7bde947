"""Draws the diagrams of the documentation into docs/img, as SVG.

diagrams.py          writes the files
diagrams.py --check  writes nothing; fails if a file is not what this script makes

Each drawing has a background of its own, so that it is legible on white and on dark pages.

trace.png there is a screenshot of a page of `tidegate trace`. The pages that rustdoc makes find no file of the
repository, so this script also writes src/trace-page.md, which has the picture in it.
"""

import base64
import re
import sys
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "img"
INK, FAINT, PAPER = "#1f2933", "#52606d", "#ffffff"
BLUE, GREEN, ORANGE, RED, GREY = "#d6e6f7", "#d5efdc", "#fde5c8", "#f8d7d7", "#e9edf1"
BLUE_LINE, GREEN_LINE, ORANGE_LINE, RED_LINE, GREY_LINE = "#2b6cb0", "#2f7d4f", "#b7651b", "#b03a3a", "#7b8794"
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', Arial, sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"


class Drawing:
    """An SVG file that grows by one element a call."""

    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="{SANS}" font-size="14" fill="{INK}">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0,0 L10,5 L0,10 z" fill="{INK}"/></marker></defs>',
            f'<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8" fill="{PAPER}" stroke="#cbd2d9"/>',
        ]

    def box(self, x, y, width, height, fill, line):
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{line}"/>'
        )

    def text(self, x, y, words, size=14, weight="normal", anchor="middle", fill=INK, font=None):
        font = f' font-family="{font}"' if font else ""
        self.parts.append(
            f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
            f'fill="{fill}"{font}>{escape(words)}</text>'
        )

    def path(self, points, head=True, dashes="", line=INK, width=1.6):
        way = "M" + " L".join(f"{x},{y}" for x, y in points)
        head = ' marker-end="url(#head)"' if head else ""
        dashes = f' stroke-dasharray="{dashes}"' if dashes else ""
        self.parts.append(f'<path d="{way}" fill="none" stroke="{line}" stroke-width="{width}"{dashes}{head}/>')

    def polygon(self, points, fill, line, width=1.0):
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(
            f'<polygon points="{corners}" fill="{fill}" stroke="{line}" stroke-width="{width}" '
            'stroke-linejoin="round"/>'
        )

    def circle(self, x, y, radius, fill, line):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="{line}"/>')

    def done(self):
        return "\n".join([*self.parts, "</svg>", ""])


def epoch():
    """The states of both halves of a window, and what passes between two ranks."""
    d = Drawing(900, 436, "The states of an epoch: both halves of a window")
    columns = [(30, 190), (340, 220), (680, 190)]

    def half(y, label, states, calls):
        d.text(30, y - 14, label, 15, "bold", "start")
        for (x, width), (name, first, second, fill, line) in zip(columns, states):
            d.box(x, y, width, 84, fill, line)
            middle = x + width / 2
            d.text(middle, y + 27, name, 16, "bold", font=MONO)
            d.text(middle, y + 50, first, 13)
            d.text(middle, y + 69, second, 13)
        for at, call in enumerate(calls):
            start, end = columns[at][0] + columns[at][1], columns[at + 1][0]
            d.path([(start + 4, y + 42), (end - 4, y + 42)])
            d.text((start + end) / 2, y + 32, call, 14, font=MONO)

    inbox = ("Inbox", "kernels of this rank's", "stream use the memory", BLUE, BLUE_LINE)
    exposed = ("Exposed", "origins write the memory;", "this rank cannot touch it", ORANGE, ORANGE_LINE)
    outbox = ("Outbox", "no epoch is open:", "nothing is borrowed", BLUE, BLUE_LINE)
    access = ("Access", "puts are noted;", "their sources are borrowed", ORANGE, ORANGE_LINE)
    half(46, "Target: the rank whose memory is written", [inbox, exposed, inbox], ["post(&s)", "wait(&s)"])
    half(266, "Origin: the rank that puts", [outbox, access, outbox], ["start()", "complete(&s)"])

    d.path([(280, 94), (280, 190), (604, 190), (604, 280)], dashes="6 4", line=BLUE_LINE)
    d.text(290, 166, "exposure: post adds to the origin's word;", 13, anchor="start", fill=BLUE_LINE)
    d.text(290, 183, "complete waits for that", 13, anchor="start", fill=BLUE_LINE)
    d.path([(636, 280), (636, 96)], dashes="6 4", line=ORANGE_LINE)
    d.text(646, 170, "data, then a signal: complete", 13, anchor="start", fill=ORANGE_LINE)
    d.text(646, 187, "adds to the target's word;", 13, anchor="start", fill=ORANGE_LINE)
    d.text(646, 204, "wait waits for that", 13, anchor="start", fill=ORANGE_LINE)

    d.text(30, 384, "A box is a Rust type. A call takes the token on its left and returns the one on its right.", 13,
           anchor="start", fill=FAINT)
    d.text(30, 402, "start() enqueues nothing. The other calls enqueue work: the streams wait for each other, the CPU "
           "does not.", 13, anchor="start", fill=FAINT)
    d.text(30, 420, "A program that drops an Exposed or an Access revokes the window: all ranks get an error that says "
           "why.", 13, anchor="start", fill=FAINT)
    return d.done()


# The crates by rows, from the top: each imports crates of lower rows only, as `layered` checks.
ROWS = [
    ("benchmarks", [("bench", "Faces, put benchmarks, reports", GREY, GREY_LINE)]),
    ("to users", [
        ("tidegate", "host, cuda, hip: one text for all; the guide", BLUE, BLUE_LINE),
        ("cli", "the launcher, tidegate run", ORANGE, ORANGE_LINE),
    ]),
    ("MPI", [("mpi", "worlds made of communicators; MPI windows as a transport", GREEN, GREEN_LINE)]),
    ("core, NICs", [
        ("core", "regions, windows, typed epochs, graphs", BLUE, BLUE_LINE),
        ("fabric", "NICs over a network", GREEN, GREEN_LINE),
        ("loopback", "a NIC for tests", GREEN, GREEN_LINE),
    ]),
    ("devices, meeting", [
        ("boot", "how ranks meet", ORANGE, ORANGE_LINE),
        ("host", "streams that are threads", GREEN, GREEN_LINE),
        ("cuda", "NVIDIA's GPUs", GREEN, GREEN_LINE),
        ("hip", "AMD's GPUs", GREEN, GREEN_LINE),
    ]),
    ("ground", [
        ("derive", "macros", BLUE, BLUE_LINE),
        ("words", "the word protocol", BLUE, BLUE_LINE),
        ("gpu", "GPUs of any vendor", GREEN, GREEN_LINE),
        ("ffi", "foreign functions", RED, RED_LINE),
        ("kernels", "device code", RED, RED_LINE),
        ("testbed", "network namespaces", ORANGE, ORANGE_LINE),
    ]),
    ("contracts", [("hal", "Device, Stream, Batch, Nic, Control: no policy", GREY, GREY_LINE)]),
]


def layered():
    """Fails if a crate imports one that does not stand in a lower row."""
    rows = {name: at for at, (_, row) in enumerate(ROWS) for name, *_ in row}
    for name, at in rows.items():
        folders = [ROOT] if name == "tidegate" else [ROOT / "crates" / name, ROOT / name]
        manifest = next(file for folder in folders if (file := folder / "Cargo.toml").exists())
        text = manifest.read_text(encoding="utf-8")
        imported = re.search(r"^\[dependencies\]$(.*?)(^\[|\Z)", text, re.M | re.S)
        for other in re.findall(r"^tidegate(?:-([a-z-]+))?\b", imported[1] if imported else "", re.M):
            if rows[other or "tidegate"] <= at:
                sys.exit(f"crates.svg: {name} imports {other or 'tidegate'}, which does not stand below it")


def crates():
    """The crates and their layers."""
    layered()
    left, right, top, tall, gap = 140, 880, 30, 56, 14
    d = Drawing(900, top + len(ROWS) * (tall + gap) + 44, "The crates of tidegate, by layers")
    for at, (label, row) in enumerate(ROWS):
        y = top + at * (tall + gap)
        d.text(left - 14, y + tall / 2 + 5, label, 13, anchor="end", fill=FAINT)
        # A box is as wide as its words need, and what is left is shared.
        needs = [max(len(name) * 10, len(what) * 7.2) for name, what, *_ in row]
        spare = (right - left - 12 * (len(row) - 1) - sum(needs)) / len(row)
        x = left
        for need, (name, what, fill, line) in zip(needs, row):
            width = need + spare
            d.box(round(x, 1), y, round(width, 1), tall, fill, line)
            d.text(round(x + width / 2, 1), y + 24, name, 15, "bold", font=MONO)
            d.text(round(x + width / 2, 1), y + 43, what, 13)
            x += width + 12
    y = top + len(ROWS) * (tall + gap) + 10
    d.text(left, y, "A crate imports crates of lower rows only. Blue: the types and the protocol. Green: devices and "
           "transports.", 13, anchor="start", fill=FAINT)
    d.text(left, y + 18, "Orange: how ranks start and meet. Red: what the Rust compiler does not check. "
           "For tests only: fake, fake-cuda.", 13, anchor="start", fill=FAINT)
    return d.done()


KINDS = {
    0: ("this rank", "#9aa5b1", "#3e4c59", ""),
    1: ("face", BLUE, BLUE_LINE, "F"),
    2: ("edge", ORANGE, ORANGE_LINE, "E"),
    3: ("corner", GREEN, GREEN_LINE, "C"),
}


def cube(d, x, y, size, fill, line):
    """A cube, seen from the front, above and the right; (x, y) is the lower left corner of its front."""
    deep = size * 0.45
    up, front = y - size, [(x, y), (x + size, y), (x + size, y - size), (x, y - size)]
    d.polygon([(x, up), (x + size, up), (x + size + deep, up - deep), (x + deep, up - deep)], fill, line)
    d.polygon([(x + size, y), (x + size, up), (x + size + deep, up - deep), (x + size + deep, y - deep)], fill, line)
    d.polygon(front, fill, line)


def faces():
    """The Faces exchange: the 26 neighbours of a rank, and what goes to each kind."""
    d = Drawing(900, 470, "The Faces exchange: the 26 neighbours of a rank")
    wide, tall, skew = 84, 40, 34
    layers = [(1, "the layer above"), (0, "the layer of this rank"), (-1, "the layer below")]
    for at, (layer, label) in enumerate(layers):
        x0, y0 = 170, 146 + at * 142
        # A slab: three rows of three cells, each a parallelogram, the row at the back first.
        for row in (1, 0, -1):
            for column in (-1, 0, 1):
                kind = sum(map(abs, (layer, row, column)))
                name, fill, line, letter = KINDS[kind]
                x = x0 + (column + 1) * wide + (row + 1) * skew
                y = y0 - (row + 1) * tall
                d.polygon([(x, y), (x + wide, y), (x + wide + skew, y - tall), (x + skew, y - tall)], fill, line, 1.4)
                d.text(x + (wide + skew) / 2, y - tall / 2 + 5, letter or "rank", 15, "bold", fill=line)
        for column in range(3):  # the front side of the slab
            kind = sum(map(abs, (layer, -1, column - 1)))
            x = x0 + column * wide
            d.polygon([(x, y0), (x + wide, y0), (x + wide, y0 + 9), (x, y0 + 9)], KINDS[kind][1], KINDS[kind][2])
        d.polygon([(x0 + 3 * wide, y0), (x0 + 3 * wide + 3 * skew, y0 - 3 * tall),
                   (x0 + 3 * wide + 3 * skew, y0 - 3 * tall + 9), (x0 + 3 * wide, y0 + 9)], GREY, GREY_LINE)
        words = label.split(" of ")
        d.text(x0 - 16, y0 - 44, words[0] + (" of" if len(words) > 1 else ""), 13, anchor="end", fill=FAINT)
        if len(words) > 1:
            d.text(x0 - 16, y0 - 27, words[1], 13, anchor="end", fill=FAINT)

    def legend(y, kind, count, first, second):
        name, fill, line, letter = KINDS[kind]
        x, size = 580, 46
        deep = size * 0.45
        cube(d, x, y, size, GREY, GREY_LINE)
        far, up = x + size, y - size
        if kind == 1:
            d.polygon([(far, y), (far, up), (far + deep, up - deep), (far + deep, y - deep)], fill, line, 2)
        elif kind == 2:
            d.path([(far, y), (far, up)], head=False, line=line, width=5)
        else:
            d.circle(far, up, 5, fill, line)
            d.circle(far, up, 3, line, line)
        d.text(670, y - 44, f"{count} {name}s ({letter})", 15, "bold", "start", line)
        d.text(670, y - 24, first, 13, anchor="start")
        if second:
            d.text(670, y - 7, second, 13, anchor="start")

    d.text(580, 44, "What a rank sends to a neighbour", 15, "bold", "start")
    d.text(580, 63, "A block has elements of n x n x n points.", 13, anchor="start", fill=FAINT)
    legend(164, 1, 6, "n x n values", "for each element there")
    legend(264, 2, 12, "n values", "for each element there")
    legend(364, 3, 8, "one value", "")
    d.text(580, 410, "26 messages, from 8 bytes", 13, anchor="start", fill=FAINT)
    d.text(580, 428, "to hundreds of kilobytes.", 13, anchor="start", fill=FAINT)
    return d.done()


def trace_page():
    data = base64.b64encode((FOLDER / "trace.png").read_bytes()).decode()
    return f"[trace-page]: data:image/png;base64,{data}\n"


FILES = {
    FOLDER / "epoch.svg": epoch,
    FOLDER / "crates.svg": crates,
    FOLDER / "faces.svg": faces,
    ROOT / "src" / "trace-page.md": trace_page,
}


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    stale = []
    for file, make in FILES.items():
        text = make()
        if check:
            if not file.exists() or file.read_text(encoding="utf-8") != text:
                stale.append(str(file.relative_to(ROOT)))
        else:
            FOLDER.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    if stale:
        sys.exit(f"{', '.join(stale)}: not what scripts/diagrams.py makes; run it, and commit what changes")


if __name__ == "__main__":
    main()
