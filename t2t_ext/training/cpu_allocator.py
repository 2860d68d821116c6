"""Says whether another memory allocator would make a training on this CPU faster.

A step allocates thousands of tensors below 256 KB, for which TensorFlow asks the C library. In a profile, glibc's
``_int_malloc`` alone took 13 % of all time, all of jemalloc 3 % (docs/results/speed.md).
"""

import pathlib

# Parameters from which a training takes long enough for it to matter.
_FEWEST_PARAMETERS = 1_000_000
_FASTER = ("jemalloc", "tcmalloc", "mimalloc")
_MAPS = pathlib.Path("/proc/self/maps")


def hint(parameters: int, maps: pathlib.Path = _MAPS) -> str:
    """Returns how to get a faster allocator where this process has that of glibc, else nothing.

    Args:
      parameters: The model's number of them; for small models it is not worth the trouble.
      maps: Names the libraries of this process, on Linux; without the file nothing is said.
    """
    if parameters < _FEWEST_PARAMETERS:
        return ""
    try:
        libraries = {pathlib.Path(line.split()[-1]).name for line in maps.read_text(errors="replace").splitlines()}
    except OSError:
        return ""
    is_glibc = "libc.so.6" in libraries
    if not is_glibc or any(name.startswith(f"lib{each}") for name in libraries for each in _FASTER):
        return ""
    return (
        "memory comes from glibc, which makes trainings on a CPU slower; with jemalloc (on Debian and Ubuntu: apt "
        "install libjemalloc2) start the command with LD_PRELOAD=libjemalloc.so.2 in front of it"
    )
