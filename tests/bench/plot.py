"""plot.py: one picture of all rows: bars of our rate beside the others'. By matplotlib where it is installed, else
drawn here into a PNG of its own: bars, names in a small font, figures."""

import math
import struct
import zlib

COLOURS = {"ours": (31, 119, 180), "plain": (150, 190, 220), "cudnn": (118, 185, 0), "flash": (255, 160, 60),
           "flex": (200, 80, 80), "copy": (160, 160, 160), "torch": (255, 160, 60), "torch.compile": (200, 80, 80)}

# 3 x 5 dots a letter, rows from the top, a bit a dot
FONT = {"0": 0o75557, "1": 0o26227, "2": 0o71747, "3": 0o71717, "4": 0o55711, "5": 0o74717, "6": 0o74757, "7": 0o71122,
        "8": 0o75757, "9": 0o75717, "a": 0o25755, "b": 0o65656, "c": 0o34443, "d": 0o65556, "e": 0o74647, "f": 0o74644,
        "g": 0o34553, "h": 0o55755, "i": 0o72227, "j": 0o11152, "k": 0o55655, "l": 0o44447, "m": 0o57755, "n": 0o65555,
        "o": 0o25552, "p": 0o65644, "q": 0o25573, "r": 0o65655, "s": 0o34216, "t": 0o72222, "u": 0o55557, "v": 0o55552,
        "w": 0o55775, "x": 0o55255, "y": 0o55222, "z": 0o71247, "/": 0o11244, ".": 0o00002, "-": 0o00700, "_": 0o00007,
        ",": 0o00024, ":": 0o02020, "(": 0o12221, ")": 0o42224}
DOT = 2
LETTER = 4 * DOT


class Canvas:
    def __init__(self, width, height):
        self.width, self.height = width, height
        self.data = bytearray(b"\xff" * (3 * width * height))

    def box(self, x, y, width, height, colour):
        x1, y1 = min(x + width, self.width), min(y + height, self.height)
        for row in range(max(y, 0), y1):
            at = 3 * (row * self.width + x)
            self.data[at:at + 3 * max(x1 - x, 0)] = bytes(colour) * max(x1 - x, 0)

    def text(self, x, y, text):
        for letter in text.lower():
            dots = FONT.get(letter, 0)
            for i in range(15):
                if dots >> (14 - i) & 1:
                    self.box(x + i % 3 * DOT, y + i // 3 * DOT, DOT, DOT, (40, 40, 40))
            x += LETTER

    def png(self):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        lines = b"".join(b"\0" + self.data[3 * self.width * y:3 * self.width * (y + 1)] for y in range(self.height))
        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def bars_of(rows):
    """[(name, [(candidate, rate, share of the longest bar of its unit)])] of the rows that ran, in the first mode."""
    ran = [row for row in rows if "modes" in row]
    most = {}
    for row in ran:
        rates = next(iter(row["modes"].values()))["rates"]
        most[row["unit"]] = max([most.get(row["unit"], 0.0), *rates.values()])
    return [(f"{row['name']} {row['unit']}", [(name, rate, rate / most[row["unit"]]) for name, rate in
                                              next(iter(row["modes"].values()))["rates"].items()]) for row in ran]


def draw(bars, title):
    """Without matplotlib."""
    left, length, thick = 46 * LETTER, 600, 14
    height = 40 + sum(thick * len(candidates) + 8 for _, candidates in bars)
    canvas = Canvas(left + length + 30 * LETTER, height)
    canvas.text(8, 10, title)
    y = 30
    for name, candidates in bars:
        canvas.text(8, y + 1, name[:44])
        for candidate, rate, share in candidates:
            canvas.box(left, y, max(int(share * length), 1), thick - 2, COLOURS.get(candidate, (120, 120, 120)))
            canvas.text(left + int(share * length) + 6, y + 1, f"{candidate} {rate:.4g}")
            y += thick
        y += 8
    return canvas.png()


PALETTE = ((31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40), (148, 103, 189), (140, 86, 75))


def curves_of(rows):
    """{what: [(length, ratio over its first peer)]} of rows named "spec ROWSxLENGTH [backward]", in the first mode."""
    curves = {}
    for row in rows:
        if row.get("checks"):
            spec, shape, *rest = row["name"].split()
            curves.setdefault(" ".join([spec, *rest]), []).append((int(shape.split("x")[1]), row["checks"][0]["ratio"]))
    return {name: sorted(points) for name, points in curves.items()}


def draw_curves(curves, bar, title):
    """Ratios over lengths, both from end to end, lengths in powers of two; a line at the bar."""
    left, top, width, height, most = 60, 40, 720, 300, 1.2
    canvas = Canvas(left + width + 40 * LETTER, top + height + 40)
    lengths = [n for points in curves.values() for n, _ in points]
    low, high = math.log2(min(lengths)), math.log2(max(lengths))
    across = lambda n: left + int((math.log2(n) - low) / max(high - low, 1e-9) * width)  # noqa: E731
    up = lambda ratio: top + height - int(min(ratio, most) / most * height)  # noqa: E731
    canvas.text(8, 10, title)
    for ratio in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0):
        canvas.box(left, up(ratio), width, 2 if ratio == bar else 1, (200, 60, 60) if ratio == bar else (210, 210, 210))
        canvas.text(8, up(ratio) - 4, f"{ratio:.1f}")
    for k in range(math.ceil(low), int(high) + 1, 2):
        canvas.text(across(2 ** k) - 12, top + height + 12, str(2 ** k))
    for i, (name, points) in enumerate(curves.items()):
        colour = PALETTE[i % len(PALETTE)]
        for (n0, r0), (n1, r1) in zip(points, points[1:]):
            x0, x1 = across(n0), across(n1)
            for x in range(x0, x1):
                canvas.box(x, up(r0 + (r1 - r0) * (x - x0) / (x1 - x0)), 1, 2, colour)
        for n, ratio in points:
            canvas.box(across(n) - 2, up(ratio) - 2, 5, 5, colour)
        canvas.text(left + width + 12, top + 16 * i, name[:36])
        canvas.box(left + width + 2, top + 16 * i + 2, 6, 6, colour)
    return canvas.png()


def write_curves(rows, bar, about, path):
    curves = curves_of(rows)
    if curves:
        with open(path, "wb") as file:
            file.write(draw_curves(curves, bar, f"share of a device copy by row length, {about['gpu']}, {about['date']}"))


def write_matplotlib(pyplot, bars, title, path):
    count = sum(len(candidates) + 1 for _, candidates in bars)
    figure, axes = pyplot.subplots(figsize=(11, 1 + 0.17 * count))
    y, ticks = 0, []
    for name, candidates in bars:
        ticks.append((y + 0.5 * (len(candidates) - 1), name))
        for candidate, rate, share in candidates:
            colour = tuple(c / 255 for c in COLOURS.get(candidate, (120, 120, 120)))
            axes.barh(y, share, color=colour)
            axes.text(share + 0.005, y, f"{candidate} {rate:.4g}", va="center", fontsize=7)
            y += 1
        y += 1
    axes.set_yticks([at for at, _ in ticks], [name for _, name in ticks], fontsize=7)
    axes.set_xticks([])
    axes.set_xlim(0, 1.2)
    axes.invert_yaxis()
    axes.set_title(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def write(rows, about, path):
    bars = bars_of(rows)
    title = f"{about['gpu']}, torch {about['torch']}, {about['date']}"
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        with open(path, "wb") as file:
            file.write(draw(bars, title))
        return
    write_matplotlib(pyplot, bars, title, path)
