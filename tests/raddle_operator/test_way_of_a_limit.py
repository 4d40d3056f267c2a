"""The functions that a limit passes, as docs/explanation/architecture.md lists them."""

import asyncio
import json
import re
import sys
from collections import Counter
from pathlib import Path

from support import webhooks

from raddle_operator.webhook.admission import Admission
from raddle_operator.webhook.caches import Caches
from raddle_operator.webhook.decision_log import DecisionLog
from raddle_operator.webhook.metrics import WebhookMetrics
from raddle_operator.webhook.settings import WebhookSettings

OURS = ("webhook.", "injection.", "objects.", "raddle.")
DOCUMENT = Path(__file__).parents[2] / "docs/explanation/architecture.md"


def passed(admission, cpu):
    """(module, function), the result, and the caller's module, in the order of the calls of a review."""
    calls, entered = [], []

    def note(frame, event, result):
        if event == "call":
            entered.append(len(calls))
            name = (frame.f_globals["__name__"].removeprefix("raddle_operator."), frame.f_code.co_name)
            calls.append([name, None, frame.f_back.f_globals["__name__"].removeprefix("raddle_operator.")])
        elif event == "return" and entered:
            calls[entered.pop()][1] = re.sub("0x[0-9a-f]+", "", repr(result))

    async def review():
        body = json.dumps(webhooks.review(webhooks.pod(cpu=cpu))).encode()
        sys.setprofile(note)
        await admission.pod(body, 1e9)
        sys.setprofile(None)

    asyncio.run(review())
    return [call for call in calls if call[0][0].startswith(OURS) and "<" not in call[0][1]]


def test_the_functions_whose_result_a_limit_changes_are_those_of_the_architecture():
    admission = Admission(
        WebhookSettings(tls_dir=Path()), Caches(webhooks.stocked().sources()), None, WebhookMetrics(), DecisionLog(0.0)
    )
    passed(admission, "3.217")  # what is made once
    # Limits that no other test has, so that nothing is remembered of them.
    of_four, of_five = passed(admission, "4.217"), passed(admission, "5.217")
    assert [name for name, _, _ in of_four] == [name for name, _, _ in of_five]
    changed = {(four[0], four[2]) for four, five in zip(of_four, of_five, strict=True) if four[1] != five[1]}
    _, _, section = DOCUMENT.read_text().partition("## How a limit is processed\n")
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \|", section.partition("\n## ")[0], re.MULTILINE)
    assert {name for name, _ in changed} == {
        (module, one) for module, found in rows for one in re.findall(r"`(\w+)`", found)
    }
    entered = Counter(module for (module, _), caller in changed if module != caller)
    assert {module: times for module, times in entered.items() if times > 1} == {
        "objects.reading": 3,
        "raddle.planning.capacity": 2,
        "raddle.planning.wire": 2,
        "webhook.verdict": 2,
    }
