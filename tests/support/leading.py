"""What the elector's tests lead with, alone and on a real API server."""

from __future__ import annotations

import asyncio


class Leading:
    """Work that notes when it runs."""

    def __init__(self):
        self.began = asyncio.Event()
        self.running = False

    async def __call__(self):
        self.running = True
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.running = False
