"""What the workload's container of a tuning's pod runs, so that the tuner beside it can start programs in it.

It takes orders from a FIFO in a folder that both containers mount, and answers by another.
"""

from __future__ import annotations

from typing import Final

# An order is `NUMBER WORD ARGUMENT`, its answer ends with `done NUMBER`; `ready`, and `ended FILE STATUS` of a program,
# come unasked. POSIX sh, of which images have dash, busybox's ash or bash; of other commands only sleep, and cp for a
# model. What is killed is awaited until nothing is left, so that the next program finds its port free. The sleeps reap
# what has no parent. busybox's kill knows no `--`.
SUPERVISOR: Final = r"""
_at=$1
trap 'kill -KILL -1 2>/dev/null; exit 0' TERM
until [ -p "$_at/answers" ]; do sleep 1; done
exec 3<>"$_at/orders" 4<>"$_at/answers"
if [ $$ = 1 ]; then echo ready >&4; else echo "ready as process $$" >&4; exit 1; fi
while read -r _number _order _argument <&3; do
  case $_order in
    start)
      (
        sh "$_at/$_argument" 3<&- 4>&- </dev/null >>"$_at/$_argument.out" 2>&1
        echo "ended $_argument $?" >&4
      ) &
      ;;
    signal)
      kill "-$_argument" -1 2>/dev/null
      if [ "$_argument" = KILL ]; then
        wait
        while kill -KILL -1 2>/dev/null; do sleep 0.1 || sleep 1; done
      fi
      ;;
    usage)
      for _file in cpu.stat cpu.pressure cpu/cpu.stat cpuacct/cpuacct.usage; do
        [ -r "/sys/fs/cgroup/$_file" ] || continue
        echo "file ${_file##*/}" >&4
        while read -r _line; do echo "$_line" >&4; done <"/sys/fs/cgroup/$_file"
      done 2>/dev/null
      ;;
  esac
  echo "done $_number" >&4
done
"""


def command(folder: str) -> tuple[str, ...]:
    """What the workload's container runs."""
    return ("/bin/sh", "-c", SUPERVISOR, "sh", folder)
