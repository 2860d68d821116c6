"""Decompresses files and members of archives while they are read, and compresses files while they are written.

The format (plain, gzip, bzip2, xz, Zstandard) is recognized by the first bytes, not by the name.
``corpus.tgz:de-en/train.de`` is the file ``de-en/train.de`` in an archive (``t2t_ext.data.corpora.archives``).
Decompression is limited: a large output that exceeds 200 times the size of the input is refused, even empty lines.
"""

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import os
import pathlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from t2t_ext.errors import UserError

PathLike = str | os.PathLike
SUFFIXES = ("", ".gz", ".bz2", ".xz", ".zst")
MOST_EXPANSION = 200  # text typically shrinks to a third; one sentence repeated again and again, to a fiftieth
MOST_UNCHECKED_BYTES = 1 << 27  # up to this output size, the expansion is not checked
MOST_UNCHECKED_LINES = 1 << 24
_MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "Zstandard",
    **{bytes([0x50 + number]) + b"\x2a\x4d\x18": "Zstandard" for number in range(16)},  # how pzstd begins its files
}  # fmt: skip
_BLOCK_BYTES = 1 << 20
_ZSTANDARD_INPUT_BYTES = 1 << 11
_LONGEST_MAGIC = max(map(len, _MAGIC))


@contextlib.contextmanager
def decompressed(raw: BinaryIO, name: PathLike) -> Iterator[BinaryIO]:
    """Yields a file of the decompressed bytes of a buffered binary file; a plain file is yielded unchanged.

    Args:
      raw: The file, at its beginning; it need not be seekable.
      name: The name of the file, for messages.

    Raises:
      UserError: The data are damaged or incomplete, or they expand too much.
    """
    # Peeks instead of rewinding, because a pipe (`<(zcat file)`) cannot be rewound.
    head = raw.peek(_LONGEST_MAGIC)[:_LONGEST_MAGIC]  # type: ignore[attr-defined]
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "")
    if not kind:
        yield raw
        return
    counted = _Counted(raw)
    try:
        with _OPENERS[kind](counted) as stream:
            yield io.BufferedReader(_Guarded(stream, counted, name), _BLOCK_BYTES)
    except (EOFError, OSError, zlib.error, lzma.LZMAError, _ZstandardDamage) as error:
        if isinstance(error, OSError) and error.errno is not None:  # a disk error; damaged data have no errno
            raise
        raise UserError(f"{name} is a damaged or incomplete {kind} file ({error}); get it again.") from error


@contextlib.contextmanager
def compressed(file: BinaryIO, name: PathLike) -> Iterator[BinaryIO]:
    """Yields a file that compresses what is written to it, as the end of a name says (``SUFFIXES``); ``file`` if none.

    The same bytes are always compressed to the same bytes (no times, no names). The file stays open.
    """
    opener = _COMPRESSORS.get(pathlib.Path(name).suffix)
    if opener is None:
        yield file
        return
    with opener(file) as stream:
        yield stream


def with_suffix_of_file(path: PathLike) -> pathlib.Path | None:
    """Returns the file of this name, or of this name plus a suffix such as ``.gz``; None if there is none."""
    for suffix in SUFFIXES:
        candidate = pathlib.Path(f"{path}{suffix}")
        if candidate.is_file():
            return candidate
    return None


class _ZstandardDamage(Exception):
    """Raised for Zstandard data that cannot be decompressed."""


class _Counted:
    """A file that counts the bytes read from it."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        block = self._raw.read(size)
        self.count += len(block)
        return block

    def seekable(self) -> bool:
        return False

    def readable(self) -> bool:
        return True


class _Guarded(io.RawIOBase):
    """Reads from a decompressor, and raises an error if its output is out of proportion to its input."""

    def __init__(self, stream: Any, source: _Counted, name: PathLike) -> None:
        super().__init__()
        self._stream, self._source, self._name = stream, source, name
        self._count = self._lines = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._stream.read(len(buffer))
        self._count += len(block)
        self._lines += block.count(b"\n")
        unchecked = self._count <= MOST_UNCHECKED_BYTES and self._lines <= MOST_UNCHECKED_LINES
        if not unchecked and self._count > MOST_EXPANSION * self._source.count:
            raise UserError(
                f"{self._name} expands to more than {MOST_EXPANSION:,} times its size (over {self._count:,} bytes, "
                f"{self._lines:,} lines): "
                f"no text does. It is not read further; get it again from where it comes from."
            )
        buffer[: len(block)] = block
        return len(block)


class _ZstandardFile(io.RawIOBase):
    """Reads consecutive Zstandard frames, and detects a truncated frame, which the library takes for a complete one."""

    def __init__(self, raw: _Counted) -> None:
        super().__init__()
        self._raw = raw
        self._frame: Any = None
        self._waiting = memoryview(b"")  # decompressed, but not yet returned
        self._input = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._waiting and self._fill():
            pass
        size = min(len(buffer), len(self._waiting))
        buffer[:size] = self._waiting[:size]
        self._waiting = self._waiting[size:]
        return size

    def _fill(self) -> bool:
        """Decompresses the next block; returns whether there was one."""
        import zstandard

        # In small pieces, because the output of one call can be up to 32,000 times as large as its input.
        block = self._input or self._raw.read(_ZSTANDARD_INPUT_BYTES)
        self._input = b""
        if not block:
            if self._frame is not None:
                raise EOFError("it ends within a frame")
            return False
        if self._frame is None:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            self._waiting = memoryview(self._frame.decompress(block))
        except zstandard.ZstdError as error:
            raise _ZstandardDamage(str(error)) from error
        if self._frame.eof:
            self._input = self._frame.unused_data
            self._frame = None
        return True


_OPENERS: dict[str, Callable[[Any], Any]] = {
    "gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open, "Zstandard": _ZstandardFile,
}  # fmt: skip


def _zstandard_writer(file: BinaryIO) -> Any:
    import zstandard

    return zstandard.ZstdCompressor().stream_writer(file, closefd=False)


_COMPRESSORS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda file: gzip.GzipFile("", "wb", fileobj=file, mtime=0),
    ".bz2": functools.partial(bz2.BZ2File, mode="wb"),
    ".xz": functools.partial(lzma.LZMAFile, mode="wb"),
    ".zst": _zstandard_writer,
}
