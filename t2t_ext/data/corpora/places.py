"""Records the file and line of each sample of a split, with a few bytes for each run of consecutive lines.

The number of a sample differs from the number of its line if earlier lines were held out, dropped or left out because
of a weight. A user who wants to correct the text needs the line.
"""

import array
import bisect
import os
import pathlib

PathLike = str | os.PathLike
Place = tuple[PathLike, int]
# A run of consecutive lines takes 20 bytes. Samples beyond this number of runs have no recorded place.
MOST_STRETCHES = 1 << 20
_NOWHERE = -1


class Places:
    """The places of samples, by sample number from 0.

    Attributes:
      count: The number of samples that have been added.
    """

    def __init__(self) -> None:
        """Creates an empty list of places."""
        self.count = 0
        self._paths: list[str] = []
        self._path: PathLike | None = None  # the file of the previous sample; below, the line after it
        self._line = 0
        # For each run of consecutive lines: its first sample number, the index of its file, its first line.
        self._positions, self._files, self._lines = array.array("q"), array.array("i"), array.array("q")

    def add(self, place: Place | None) -> None:
        """Adds the next sample; None means that its place is unknown."""
        path, line = place or (None, _NOWHERE)
        if path is not self._path or line != self._line or not self.count:
            self._begin(path, line)
        self._path, self._line = path, line + 1 if place else _NOWHERE
        self.count += 1

    def of(self, position: int) -> str:
        """Returns a place such as ``train.de:21``, with the full path if file names clash; empty if unknown."""
        stretch = bisect.bisect_right(self._positions, position) - 1
        if not 0 <= position < self.count or stretch < 0 or self._files[stretch] == _NOWHERE:
            return ""
        path = self._paths[self._files[stretch]]
        # Without the directory, so that the manifest does not depend on the location of the text.
        name = pathlib.PurePath(path).name
        is_unique = sum(pathlib.PurePath(other).name == name for other in self._paths) == 1
        return f"{name if is_unique else path}:{self._lines[stretch] + position - self._positions[stretch]}"

    def forget(self) -> None:
        """Removes all samples and their places."""
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
