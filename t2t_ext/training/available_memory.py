"""Finds out how much memory a process may still take on this machine and in its control groups.

Imports no TensorFlow.
"""

import contextlib
import pathlib

_MEMINFO = pathlib.Path("/proc/meminfo")
_CGROUP_ROOT = pathlib.Path("/sys/fs/cgroup")
_OWN_CGROUPS = pathlib.Path("/proc/self/cgroup")


def available_bytes(
    meminfo: pathlib.Path = _MEMINFO, cgroup_root: pathlib.Path = _CGROUP_ROOT, own: pathlib.Path = _OWN_CGROUPS
) -> int | None:
    """Returns the bytes that can still be taken before something is swapped out or killed; None if not on Linux.

    This is the smallest of what the kernel calls available and what each control group of this process (version 1 and
    2, up to the root, as in containers) has left. The page cache of files counts as free.
    """
    found = []
    with contextlib.suppress(OSError, ValueError, KeyError):
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        found.append(int(fields["MemAvailable"].split()[0]) * 1024)
    for directory, limit, usage, cache in _groups(cgroup_root, own):
        with contextlib.suppress(OSError, ValueError):
            # The limit of an unlimited group is "max" (version 2) or a number close to 2^63 (version 1).
            left = int((directory / limit).read_text()) - int((directory / usage).read_text())
            found.append(left + _statistic(directory / "memory.stat", cache))
    return max(0, min(found)) if found else None


def resident_bytes(pid: int) -> tuple[int, int]:
    """Returns the current and the peak resident set of a process, in bytes; (0, 0) if it has ended."""
    with contextlib.suppress(OSError):
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        if "VmRSS" in fields:
            now, peak = (int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
            return now, peak
    return 0, 0


def _groups(root: pathlib.Path, own: pathlib.Path) -> list[tuple[pathlib.Path, str, str, str]]:
    """Returns (directory, file of the limit, file of the usage, name of the cache) of all groups above this process."""
    groups = []
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                mount, names = root, ("memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                mount = root / "memory"
                names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            else:
                continue
            # In a container, the path may be the host's, and only its root may exist.
            places = [path.strip("/"), *map(str, pathlib.PurePosixPath(path.strip("/")).parents), "."]
            groups += [(mount / place, *names) for place in dict.fromkeys(places) if ".." not in place]
    return groups


def _statistic(path: pathlib.Path, name: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(dict(line.split() for line in path.read_text().splitlines()).get(name, 0))
    return 0
