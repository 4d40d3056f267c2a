"""Every row of the table of servers, run for real: what docs/reference/servers.md says is so."""

from __future__ import annotations

import pytest
from support.servers import lab, record
from support.servers.record import ROWS

pytestmark = [pytest.mark.servers, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_it_is_reached_as_its_row_says(row, fake, models, recorded, progress):
    progress.say(f"{row.name}: {row.program.package} {row.program.version} from {row.program.registry}")
    row.program.made()
    container = lab.given(row, fake.root)
    stock = lab.run(row, fake, models, lab.NOTHING)
    raddle = lab.run(row, fake, models, container)
    advised = lab.run(row, fake, models, container, *row.advised) if row.advised else None
    progress.say(f"{row.name}: stock {stock}, Raddle {raddle}, as advised {advised}, {container.notes or ''}")
    assert not record.wrong(row, container, stock, raddle, advised)
    recorded(record.of(row, stock, raddle, advised))
