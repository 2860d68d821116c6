"""Tests of the hint of cpu_allocator.py that another memory allocator would make training on CPUs faster."""

import os
import pathlib
import subprocess
import sys

import pytest

from t2t_ext.training import cpu_allocator

_LARGE = 2_000_000
_GLIBC = "7f00-7f01 r-xp 00000000 08:01 42 /usr/lib/x86_64-linux-gnu/libc.so.6\n7f02-7f03 rw-p 00000000 00:00 0\n"


@pytest.mark.parametrize(
    ("maps", "parameters", "said"),
    [
        (_GLIBC, _LARGE, True),
        (_GLIBC + "7f04-7f05 r-xp 00000000 08:01 43 /home/my jemalloc notes/libother.so\n", _LARGE, True),
        (_GLIBC, 1000, False),
        (_GLIBC + "7f04-7f05 r-xp 00000000 08:01 43 /usr/lib/libjemalloc.so.2\n", _LARGE, False),
        (_GLIBC + "7f04-7f05 r-xp 00000000 08:01 43 /opt/libtcmalloc_minimal.so.4.5.10\n", _LARGE, False),
        ("7f00-7f01 r-xp 00000000 08:01 42 /lib/ld-musl-x86_64.so.1\n", _LARGE, False),
    ],
)
def test_glibc_alone_is_slow(tmp_path: pathlib.Path, maps: str, parameters: int, said: bool) -> None:
    path = tmp_path / "maps"
    path.write_text(maps)
    assert ("LD_PRELOAD=libjemalloc.so.2" in cpu_allocator.hint(parameters, path)) is said


def test_without_the_file_nothing_is_said(tmp_path: pathlib.Path) -> None:
    assert cpu_allocator.hint(_LARGE, tmp_path / "missing") == ""


@pytest.mark.skipif(not pathlib.Path("/proc/self/maps").exists(), reason="not Linux")
def test_a_preloaded_library_is_seen(tmp_path: pathlib.Path) -> None:
    """An allocator loaded by LD_PRELOAD is recognized; a copy of libm under the name of jemalloc stands in for it."""
    maps = [line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines()]
    other = next((each for each in maps if pathlib.Path(each).name == "libm.so.6"), "")
    if not other:
        pytest.skip("no glibc")
    (tmp_path / "libjemalloc.so.2").write_bytes(pathlib.Path(other).read_bytes())
    program = f"from t2t_ext.training import cpu_allocator; print(cpu_allocator.hint({_LARGE}))"
    told = [
        subprocess.run(
            [sys.executable, "-c", program], env={**os.environ, **more}, check=True, capture_output=True, text=True
        ).stdout
        for more in ({"LD_PRELOAD": str(tmp_path / "libjemalloc.so.2")}, {"LD_PRELOAD": ""})
    ]
    assert told[0].strip() == ""
    assert "apt install libjemalloc2" in told[1]
