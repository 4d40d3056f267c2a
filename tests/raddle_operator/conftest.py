"""The webhook's tests run on the event loop that production has: uvloop brings a TLS of its own."""

import asyncio

import uvloop


def pytest_asyncio_loop_factories(config, item):
    factory = uvloop.new_event_loop if item.path.name.startswith("test_webhook") else asyncio.new_event_loop
    return {"loop": factory}
