"""Random damage to files, as by disks, networks, spreadsheets and people."""

from __future__ import annotations

import random
from collections.abc import Callable

Damage = Callable[[random.Random, bytes], bytes]


def damage_content(rng: random.Random, content: bytes, kinds: tuple[Damage, ...]) -> bytes:
    """Returns `content` after one to three kinds of damage."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        content = rng.choice(kinds)(rng, content)
    return content


def cut_short(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def remove_part(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content) + 1)
    return content[:start] + content[start + rng.choice((1, 7, 500)) :]


def flip_bits(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 8, 64)) if changed else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def overwrite_part(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content) + 1)
    junk = rng.choice((b"\0" * 16, b"\xff" * 16, rng.randbytes(16)))
    return content[:start] + junk + content[start + 16 :]


def append(rng: random.Random, content: bytes) -> bytes:
    return content + rng.choice((b"\0", b"\n", content, rng.randbytes(20)))


BINARY: tuple[Damage, ...] = (cut_short, remove_part, flip_bits, overwrite_part, append)

VALUES = (
    *("", " ", "-1", "0", "1e999", "nan", "²", "٣", "9" * 30, "x" * 5000, "a/../b", "..", "/", "."),
    *("/etc/passwd", "../../etc/passwd", "a\0b", "\0/b", "train", "test", "query", "gallery"),
    *('"', '""', '"a', "a,b", "a;b", "a\tb", "ünï/cöde", "\ufeff", "\u2028", "\r", "{}", "[]"),
)


def _lines(content: bytes) -> list[bytes]:
    return content.splitlines(keepends=True)


def repeat_line(rng: random.Random, content: bytes) -> bytes:
    lines = _lines(content) or [b""]
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
    return b"".join(lines)


def drop_line(rng: random.Random, content: bytes) -> bytes:
    lines = _lines(content)
    if lines:
        del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def shuffle_lines(rng: random.Random, content: bytes) -> bytes:
    lines = _lines(content)
    rng.shuffle(lines)
    return b"".join(lines)


def replace_value(rng: random.Random, content: bytes) -> bytes:
    """Replaces a value of a line, whatever separates them."""
    lines = _lines(content) or [b""]
    number = rng.randrange(len(lines))
    separator = next((mark for mark in (b",", b"\t", b": ", b" ") if mark in lines[number]), b" ")
    values = lines[number].split(separator)
    values[rng.randrange(len(values))] = rng.choice(VALUES).encode()
    lines[number] = separator.join(values)
    return b"".join(lines)


def change_separator(rng: random.Random, content: bytes) -> bytes:
    return content.replace(
        rng.choice((b",", b" ", b"\n")), rng.choice((b";", b"\t", b"|", b"\r\n"))
    )


def change_encoding(rng: random.Random, content: bytes) -> bytes:
    return content.decode("utf-8", "replace").encode(
        rng.choice(("utf-16", "utf-8-sig", "latin-1", "utf-32")), "replace"
    )


def append_long_line(rng: random.Random, content: bytes) -> bytes:
    return content + b"x" * 200_000 + rng.choice((b"\n", b"", b",1\n"))


def empty(rng: random.Random, content: bytes) -> bytes:
    return rng.choice((b"", b"\n", b"\xef\xbb\xbf", _lines(content)[0] if content else b""))


TEXT: tuple[Damage, ...] = (
    *(
        repeat_line,
        drop_line,
        shuffle_lines,
        change_separator,
        change_encoding,
        append_long_line,
        empty,
    ),
    *(replace_value, replace_value, replace_value, cut_short, flip_bits, overwrite_part),
)
