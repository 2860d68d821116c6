"""Opens raw files for reading, plain or compressed, on disk or in an archive (``corpus.tgz:de-en/train.de``)."""

import contextlib
import pathlib
from collections.abc import Iterator
from typing import BinaryIO

from t2t_ext.data.corpora import archives, compression
from t2t_ext.errors import UserError
from t2t_ext.io import inputs


@contextlib.contextmanager
def opened(path: compression.PathLike) -> Iterator[BinaryIO]:
    """Opens a file, a pipe or a member of an archive (``ARCHIVE:MEMBER``) for buffered reading of decompressed bytes.

    Raises:
      UserError: The file cannot be read, its compressed data are damaged or incomplete, or they expand too much.
    """
    archive, member = archives.split_address(path)
    try:
        with contextlib.ExitStack() as stack:
            if member:
                raw = stack.enter_context(archives.opened_member(archive, member))
            else:
                raw = stack.enter_context(open(inputs.on_disk(path), "rb"))
            yield stack.enter_context(compression.decompressed(raw, path))
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder; name a file.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from error


def on_disk(path: compression.PathLike) -> pathlib.Path:
    """Returns the path of the file on disk: the path itself, or the archive for a member of an archive."""
    return pathlib.Path(archives.split_address(path)[0])
