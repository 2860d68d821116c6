"""Tests that an export to a disk that is too small fails with one line and leaves nothing behind."""

import subprocess

import pytest
from hostile_world import RUN, World


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [4, 400, 1900])  # nothing fits; the weights do not; the graph does not
def test_an_export(tmp_path, kilobytes):
    world, disk = World(tmp_path / "world"), tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", disk]
    if subprocess.run(["mount", *options], check=False, capture_output=True).returncode:
        pytest.skip("may not mount a small disk here")
    try:
        outcome = world.run("exporter", f"--output_dir=WORLD/{RUN}", f"--export_dir={disk / 'export'}")
        assert world.fault(outcome) == ""
        assert outcome.status == 2
        assert f"Cannot write {disk / 'export'}" in outcome.err
        assert [path for path in disk.rglob("*") if path.is_file() and ".lock" not in path.name] == []
    finally:
        subprocess.run(["umount", disk], check=True)
