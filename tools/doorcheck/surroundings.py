"""Two surroundings in which programs start: with the door, and without its mounts. As root, with util-linux."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from doorcheck import starter
from doorcheck.programs import PYTHONS
from raddle import delivery
from raddle_operator.local import door

# First the folders that programs are from; the rest of $HOME is hidden, so that a user without rights can get there.
_HIDE: Final = """
set -e
home=$1; folders=$2; shift 2
if [ "$home" != / ]; then
    mount -t tmpfs -o mode=755 none /mnt
    for folder in $folders; do
        if [ -d "$home/$folder" ]; then
            mkdir -p "/mnt/$folder"
            mount --bind "$home/$folder" "/mnt/$folder"
        fi
    done
    mount --rbind /mnt "$home"
    umount -l /mnt
fi
for folder in /tmp /var/tmp /dev/shm; do
    mount -t tmpfs -o mode=1777 none $folder
done
exec "$@"
"""
# Run behind the door, it starts a program where there is none.
CLOSE: Final = f"""
set -e
umount -l {delivery.PRELOAD_FILE} {delivery.MOUNT_PATH}
rm {delivery.PRELOAD_FILE}
rmdir {delivery.MOUNT_PATH}
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program did. `status` None: it didn't end in time; `descriptors` None: it was not watched."""

    status: int | None
    output: str
    errors: str
    descriptors: tuple[str, ...] | None
    heads: tuple[str, str]

    def same(self, other: Outcome) -> bool:
        """Whether the other one did the same."""
        return self.compared() == other.compared()

    def compared(self) -> tuple[object, ...]:
        """What is compared."""
        return (self.status, self.output, self.errors, self.descriptors)


class Surroundings:
    """A process that starts programs where the door is open, or where it was closed again."""

    def __init__(self, tree: Path, *, opened: bool) -> None:
        python = os.path.realpath(sys.executable)
        command = [
            *("unshare", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *door.inside(tree),
            *(() if opened else ("sh", "-c", CLOSE, "raddle")),
            *("sh", "-c", _HIDE, "raddle", str(Path.home()), " ".join(PYTHONS)),
            *(python, "-I", "-S", "-c", Path(starter.__file__).read_text()),
        ]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, command: list[str], environ: dict[str, str], *, watched: bool, seconds: float) -> Outcome:
        """Runs it to its end. Raises RuntimeError where the surroundings are gone."""
        wanted = {"command": command, "environ": environ, "watched": watched, "seconds": seconds}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(wanted), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"what starts programs has ended, by {' '.join(command)} perhaps")
        answer = json.loads(line)
        descriptors = answer["descriptors"]
        return Outcome(
            answer["status"],
            answer["output"]["sha256"],
            answer["errors"]["sha256"],
            None if descriptors is None else tuple(descriptors),
            (answer["output"]["head"], answer["errors"]["head"]),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
