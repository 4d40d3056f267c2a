"""The descriptions of thread pools: while a large model loads, others that come and go leave its places alone."""

import subprocess
from pathlib import Path

from support.native_parts import compiled

SOURCE = Path(__file__).parent / "native" / "pools.c"


def test_a_session_that_loads_slowly_keeps_its_places_while_others_come_and_go(tmp_path):
    built = compiled(tmp_path, SOURCE, ("sys", "text", "cpuset", "elf", "threads"))
    done = subprocess.run([built], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "held\n"), done.stderr
