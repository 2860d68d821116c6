"""Says whether another memory allocator would make training on this CPU faster.

A step allocates thousands of tensors below 256 KB, which TensorFlow requests from the C library. In a profile, glibc's
``_int_malloc`` alone took 13 % of the total time, all of jemalloc 3 % (docs/results/speed.md).
"""

import pathlib

# Models with fewer parameters do not train long enough for it to matter.
_FEWEST_PARAMETERS = 1_000_000
_FASTER = ("jemalloc", "tcmalloc", "mimalloc")
_MAPS = pathlib.Path("/proc/self/maps")


def hint(parameters: int, maps: pathlib.Path = _MAPS) -> str:
    """Returns how to get a faster allocator if this process uses that of glibc, otherwise "".

    Args:
      parameters: The model's number of parameters; for small models it is not worth the trouble.
      maps: The file that lists this process's libraries, on Linux; without it the result is "".
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
