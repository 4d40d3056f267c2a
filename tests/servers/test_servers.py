"""Every row of the table of servers, run for real: what docs/reference/servers.md says is so."""

import pytest
from support.servers import lab, record, speed
from support.servers.record import ROWS

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.label)
def test_it_is_reached_as_its_row_says(row, fakes, models, recorded, progress, request):
    progress.say(f"{row.label}: {row.program.package} {row.program.version} from {row.program.registry}")
    row.program.made()
    one, other = fakes
    container = lab.given(row, other.root)
    raddle = lab.run(row, other, models, container) if row.advised else None
    measured = None
    with (
        lab.running(row, one, models, lab.NOTHING) as stock,
        lab.running(row, other, models, container, *row.advised) as last,
    ):
        if row.repeats and (row.way is None or request.config.getoption("--speed")):
            measured = speed.compared(stock, last, brief=row.way is None)
    seen = (stock.seen, raddle or last.seen, last.seen if row.advised else None)
    progress.say(f"{row.label}: stock, Raddle, as advised: {seen}, {container.notes or ''} {measured or ''}")
    wrong = record.wrong(row, container, *seen, measured)
    # The table has those that are slower than stock, too.
    if row.way is None or not wrong:
        recorded(row, record.of(row, *seen, measured))
    assert not wrong
