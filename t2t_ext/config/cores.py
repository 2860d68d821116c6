"""How many processor cores this process may use."""

import os


def usable_cores() -> int:
    """Returns how many cores this process may run on, which Slurm, cpusets and taskset limit; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
