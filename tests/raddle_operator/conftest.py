"""The webhook's tests run on the event loop that production has: uvloop brings a TLS of its own. A schema."""

import asyncio

import pytest
import uvloop
from jsonschema import Draft202012Validator

from generate import crds


def pytest_asyncio_loop_factories(config, item):
    factory = uvloop.new_event_loop if item.path.name.startswith("test_webhook") else asyncio.new_event_loop
    return {"loop": factory}


@pytest.fixture(scope="module")
def schema():
    return Draft202012Validator(crds.read("nodecputopologies")["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
