"""Inputs from a corpus: the same seed, target and number always give the same bytes.

Bytes are damaged as disks and attackers damage them: bit flips, integers at the edges of their ranges, truncation, duplication,
splices of two files.  What has a structure is also changed inside it: JSON and MessagePack by their trees, texts by tokens.
Formats that end with a checksum get the right one again in most inputs, for else nothing behind the checksum is ever reached.
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from replitree.errors import ReplitreeError

INPUT_BYTES_MAX = 1 << 18
"""No input is longer: nesting and repetition show their cost below that."""

_INTEGERS = (
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    256,
    32767,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53,
    2**63 - 1,
    2**64 - 1,
)
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        "a",
        "\x00",
        "\ud7ff",
        "../../etc/passwd",
        "*",
        "all",
        [],
        {},
        [[]],
        -1,
        -0.0,
        1e308,
        5e-324,
    ),
    *("9" * 5000, "x" * 70_000, 10**30, -(2**63), 2**63, *_INTEGERS),
)
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


class Shape(Enum):
    """What structure the inputs of a target have."""

    BYTES = "bytes"
    TEXT = "text"
    JSON = "json"
    LINES = "lines"
    MSGPACK = "msgpack"


@dataclass(frozen=True, slots=True)
class Sealed:
    """How a format wraps a payload: `opened` takes the payload out of a file, `sealed` puts another one into its place."""

    opened: Callable[[bytes], bytes]
    sealed: Callable[[bytes, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Mutator:
    """Makes the inputs of one target.

    Attributes
    ----------
    name
        The target's, so that two targets with equal corpora get different inputs.
    corpus
        At least one file.
    words
        What is put into texts.
    """

    name: str
    corpus: tuple[bytes, ...]
    shape: Shape = Shape.BYTES
    words: tuple[str, ...] = ()
    seal: Sealed | None = None

    def input(self, seed: int, number: int) -> bytes:
        """Return one input; the first ones are the corpus as it is."""
        if number < len(self.corpus):
            return self.corpus[number]
        draw = random.Random(f"{seed}:{self.name}:{number}")
        whole = draw.choice(self.corpus)
        if self.seal is None or draw.random() < 0.2:
            return self._changed(whole, draw)[:INPUT_BYTES_MAX]
        try:
            return self.seal.sealed(whole, self._changed(self.seal.opened(whole), draw)[:INPUT_BYTES_MAX])
        except (ValueError, struct.error, ReplitreeError):  # a file of the corpus without what is sealed in the others
            return _damaged(whole, draw, self.corpus)

    def _changed(self, data: bytes, draw: random.Random) -> bytes:
        if draw.random() < 0.3 or self.shape is Shape.BYTES:
            return _damaged(data, draw, self.corpus)
        match self.shape:
            case Shape.TEXT:
                return _text(data, draw, self.corpus, self.words)
            case Shape.LINES:
                return _lines(data, draw, self.corpus)
            case _:
                return _tree(data, draw, self.shape)


def _damaged(data: bytes, draw: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Damage bytes, mostly in one place, and most often near an end of the file: headers and footers are there."""
    found = bytearray(data)
    for _ in range(1 + int(draw.expovariate(0.7))):
        found = _DAMAGES[draw.randrange(len(_DAMAGES))](found, draw, corpus)
    return bytes(found)


def _place(data: bytearray, draw: random.Random) -> int:
    if not data:
        return 0
    size, where = len(data), draw.random()
    if where < 0.25:
        return min(size - 1, int(draw.expovariate(1 / 64)))
    if where < 0.5:
        return max(0, size - 1 - int(draw.expovariate(1 / 64)))
    return draw.randrange(size)


def _flip(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> bytearray:
    if data:
        data[_place(data, draw)] ^= 1 << draw.randrange(8)
    return data


def _byte(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> bytearray:
    if data:
        data[_place(data, draw)] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x22, 0x2C, draw.randrange(256)))
    return data


def _integer(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> bytearray:
    width, order = draw.choice((1, 2, 4, 8)), draw.choice(("little", "big"))
    value = draw.choice(_INTEGERS) * draw.choice((1, 1, -1)) & ((1 << 8 * width) - 1)
    at = _place(data, draw)
    if draw.random() < 0.5:
        at -= at % width
    data[at : at + width] = value.to_bytes(width, "little" if order == "little" else "big")
    return data


def _near_integer(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> bytearray:
    """Make a small integer somewhat larger or smaller: counts, lengths and offsets are."""
    at = _place(data, draw) & ~3
    value = int.from_bytes(data[at : at + 4], "little") + draw.choice((-8, -2, -1, 1, 2, 8, 64, 4096))
    data[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4, "little")
    return data


def _cut(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> bytearray:
    return data[: _place(data, draw)]


def _remove(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> bytearray:
    at = _place(data, draw)
    del data[at : at + draw.choice((1, 1, 2, 4, 8, 64))]
    return data


def _repeat(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> bytearray:
    at = _place(data, draw)
    piece = data[at : at + draw.choice((1, 2, 8, 64, 512))]
    times = draw.choice((1, 1, 2, 16, 400))
    data[at:at] = bytes(piece * times)
    return data


def _zeros(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> bytearray:
    at = _place(data, draw)
    size = min(len(data) - at, draw.choice((4, 16, 512)))
    data[at : at + size] = bytes([draw.choice((0, 0, 0xFF))]) * size
    return data


def _splice(data: bytearray, draw: random.Random, corpus: Sequence[bytes]) -> bytearray:
    other = draw.choice(corpus)
    cut, begin = _place(data, draw), draw.randrange(len(other) + 1)
    if draw.random() < 0.5:
        return bytearray(data[:cut] + other[begin:])
    data[cut:cut] = other[begin : begin + draw.choice((4, 32, 256))]
    return data


def _swap(data: bytearray, draw: random.Random, _: Sequence[bytes]) -> bytearray:
    size = draw.choice((4, 8, 64))
    one, two = sorted((_place(data, draw), _place(data, draw)))
    if one + size <= two:
        data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]
    return data


_DAMAGES = (
    _flip,
    _flip,
    _byte,
    _byte,
    _integer,
    _integer,
    _near_integer,
    _cut,
    _remove,
    _repeat,
    _zeros,
    _splice,
    _swap,
)


def _text(data: bytes, draw: random.Random, corpus: Sequence[bytes], words: Sequence[str]) -> bytes:
    tokens = _TOKEN.findall(data.decode(errors="replace"))
    others = _TOKEN.findall(draw.choice(corpus).decode(errors="replace"))
    for _ in range(1 + int(draw.expovariate(0.4))):
        at = draw.randrange(len(tokens) + 1)
        match draw.randrange(8):
            case 0:
                tokens[at : at + 1] = []
            case 1:
                tokens[at:at] = [" ", draw.choice(words or ("a",)), " "]
            case 2:
                tokens[at : at + 1] = [draw.choice(words or ("a",))]
            case 3:
                tokens[at : at + draw.randrange(4)] = others[draw.randrange(len(others) + 1) :][: draw.randrange(12)]
            case 4:
                begin, end = draw.choice(
                    (("(", ")"), ("array<", ">"), ("not (", ")"), ("'", "'"), ("`", "`"), ("-", ""))
                )
                times = draw.choice((1, 1, 3, 60, 3000))
                tokens = [begin * times, *tokens, end * times]
            case 5:
                tokens[at:at] = tokens[at : at + 6] * draw.choice((1, 5, 300))
            case 6:
                tokens[at : at + 1] = [
                    draw.choice(("9" * 400, "1e999999999", "-0", "\x00", "\ud7ff", "é", "٣", "\u2028", "'", "`"))
                ]
            case _:
                draw.shuffle(tokens)
    return "".join(tokens).encode(errors="surrogatepass")


def _lines(data: bytes, draw: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Change lines: their order, their number, and JSON inside one of them."""
    lines = data.split(b"\n")
    at = draw.randrange(len(lines))
    match draw.randrange(5):
        case 0:
            del lines[at]
        case 1:
            lines[at:at] = [lines[at]] * draw.choice((1, 2, 300))
        case 2:
            lines[at:at] = [draw.choice(draw.choice(corpus).split(b"\n"))]
        case 3:
            two = draw.randrange(len(lines))
            lines[at], lines[two] = lines[two], lines[at]
        case _:
            lines[at] = _tree(lines[at], draw, Shape.JSON)
    return b"\n".join(lines)


# --- trees: JSON and MessagePack --------------------------------------------------------------------------------------------


def _tree(data: bytes, draw: random.Random, shape: Shape) -> bytes:
    try:
        tree = json.loads(data) if shape is Shape.JSON else msgspec.msgpack.decode(data)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return _damaged(data, draw, (data,))
    for _ in range(1 + int(draw.expovariate(0.8))):
        tree = _changed_tree(tree, draw)
    try:
        if shape is Shape.JSON:
            return json.dumps(tree, separators=(",", ":"), ensure_ascii=draw.random() < 0.5).encode(
                errors="surrogatepass"
            )
        return msgspec.msgpack.encode(tree)
    except (OverflowError, ValueError, RecursionError, TypeError, msgspec.MsgspecError):
        return _damaged(data, draw, (data,))


def _changed_tree(tree: Any, draw: random.Random) -> Any:
    """Change one node, or one member of one."""
    way: list[tuple[Any, Any]] = []
    node = tree
    while isinstance(node, dict | list) and node and (not way or draw.random() < 0.8):
        key = draw.choice(list(node)) if isinstance(node, dict) else draw.randrange(len(node))
        way.append((node, key))
        node = node[key]
    if not way:
        return _another(node, draw)
    parent, key = way[-1]
    match draw.randrange(6):
        case 0:
            del parent[key]
        case 1 if isinstance(parent, list):
            parent[key:key] = [parent[key]] * draw.choice((1, 2, 100))
        case 1:
            parent[draw.choice((f"{key}x", "format", "kind", "", "\x00"))] = parent[key]
        case 2:
            above, other = draw.choice(way)
            parent[key] = json.loads(json.dumps(above[other], default=str))
        case 3:
            for _ in range(draw.choice((1, 3, 200))):
                parent[key] = [parent[key]] if draw.random() < 0.5 else {"a": parent[key]}
        case _:
            parent[key] = _another(node, draw)
    return tree


def _another(value: Any, draw: random.Random) -> Any:
    """Return a value that is like one, or unlike any that was expected."""
    kind = draw.random()
    if kind < 0.4:
        return draw.choice(_VALUES)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.choice((-1, 1, 2, -value, -2 * value, 2**31, 2**63))
    if isinstance(value, str):
        text = _text(value.encode(errors="replace"), draw, (value.encode(errors="replace"),), ("all", "_", "-", "1"))
        return text.decode(errors="replace")
    if isinstance(value, bytes):
        return _damaged(value, draw, (value,))
    return draw.choice(_VALUES)
