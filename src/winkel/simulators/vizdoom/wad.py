"""WAD files: a header of 12 bytes, the lumps one after the other, and a directory of them."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from winkel.errors import InputError

_HEADER = struct.Struct("<4sii")  # kind, number of lumps, where the directory is
_ENTRY = struct.Struct("<ii8s")  # where the lump is, how long, its name


class Lump(NamedTuple):
    """A named piece of a WAD. Markers such as MAP01 are empty."""

    name: str
    data: bytes


class Wad(NamedTuple):
    """A kind, `IWAD` or `PWAD`, and lumps in their order, in which names may repeat."""

    kind: str
    lumps: tuple[Lump, ...]

    def lump(self, name: str) -> bytes:
        """The data of the first lump of that name."""
        for lump in self.lumps:
            if lump.name == name:
                return lump.data
        names = ", ".join(lump.name for lump in self.lumps)
        raise InputError(f"need a lump {name} in the WAD, got {names or 'none'}")


def parse(content: bytes) -> Wad:
    """The lumps of a file's content."""
    if len(content) < _HEADER.size or content[:4] not in (b"IWAD", b"PWAD"):
        raise InputError(f"need a WAD, which begins with IWAD or PWAD, got {content[:4]!r}")
    kind, count, directory = _HEADER.unpack_from(content)
    if count < 0 or not _HEADER.size <= directory <= len(content) - count * _ENTRY.size:
        raise InputError(
            f"need a WAD with a directory inside its {len(content)} bytes, "
            f"got {count} entries at {directory}"
        )
    lumps = []
    for start, length, name in _ENTRY.iter_unpack(
        content[directory : directory + count * _ENTRY.size]
    ):
        label = name.split(b"\0")[0].decode("latin-1")
        if min(start, length) < 0 or start + length > len(content):
            raise InputError(f"need lump {label} inside the WAD, got bytes {start}+{length}")
        lumps.append(Lump(name=label, data=content[start : start + length]))
    return Wad(kind=kind.decode(), lumps=tuple(lumps))


def build(kind: str, lumps: Iterable[Lump]) -> bytes:
    """The content of a file with these lumps one after the other, and the directory at its end."""
    body, directory = b"", b""
    count = 0
    for lump in lumps:
        name = lump.name.encode("latin-1")
        if not 1 <= len(name) <= 8:
            raise InputError(f"need a lump's name of 1 to 8 letters, got {lump.name!r}")
        directory += _ENTRY.pack(_HEADER.size + len(body), len(lump.data), name)
        body += lump.data
        count += 1
    return _HEADER.pack(kind.encode(), count, _HEADER.size + len(body)) + body + directory
