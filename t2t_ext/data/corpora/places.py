"""Where the samples of a split stand: the file and line of each, in some bytes for every stretch of lines.

Lines that are held out, dropped or left out by a weight make the number of a sample another one than that of its line;
who corrects a text needs the line.
"""

import array
import bisect
import os
import pathlib

PathLike = str | os.PathLike
Place = tuple[PathLike, int]
# Of 20 bytes each. What comes after more has no place.
MOST_STRETCHES = 1 << 20
_NOWHERE = -1


class Places:
    """The places of samples by their positions, from 0.

    Attributes:
      count: How many samples have been added.
    """

    def __init__(self) -> None:
        """Makes an empty list."""
        self.count = 0
        self._paths: list[str] = []
        self._path: PathLike | None = None  # of the sample before, and the line after it
        self._line = 0
        # Of every stretch of consecutive lines the first position, the number of the file, the line.
        self._positions, self._files, self._lines = array.array("q"), array.array("i"), array.array("q")

    def add(self, place: Place | None) -> None:
        """Adds the next sample, whose place may be unknown."""
        path, line = place or (None, _NOWHERE)
        if path is not self._path or line != self._line or not self.count:
            self._begin(path, line)
        self._path, self._line = path, line + 1 if place else _NOWHERE
        self.count += 1

    def of(self, position: int) -> str:
        """Returns ``train.de:21``, with the folders of the file where another one has its name; empty if unknown."""
        stretch = bisect.bisect_right(self._positions, position) - 1
        if not 0 <= position < self.count or stretch < 0 or self._files[stretch] == _NOWHERE:
            return ""
        path = self._paths[self._files[stretch]]
        # Without the folder, so that the manifest does not depend on where the text lies.
        name = pathlib.PurePath(path).name
        is_unique = sum(pathlib.PurePath(other).name == name for other in self._paths) == 1
        return f"{name if is_unique else path}:{self._lines[stretch] + position - self._positions[stretch]}"

    def forget(self) -> None:
        """Makes all places unknown."""
        self.__init__()  # type: ignore[misc]

    def _begin(self, path: PathLike | None, line: int) -> None:
        if len(self._positions) > MOST_STRETCHES:
            return
        file, name = _NOWHERE, "" if path is None else os.fspath(path)
        if name and len(self._positions) < MOST_STRETCHES:
            if name not in self._paths:
                self._paths.append(name)
            file = self._paths.index(name)
        self._positions.append(self.count)
        self._files.append(file)
        self._lines.append(line)
