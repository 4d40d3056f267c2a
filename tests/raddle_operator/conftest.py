"""The webhook's tests run on the event loop that production has: uvloop brings a TLS of its own. A schema."""

import asyncio
from pathlib import Path

import pytest
import uvloop
import yaml
from jsonschema import Draft202012Validator

CRD = Path(__file__).parents[2] / "crds" / "nodecputopologies.yaml"


def pytest_asyncio_loop_factories(config, item):
    factory = uvloop.new_event_loop if item.path.name.startswith("test_webhook") else asyncio.new_event_loop
    return {"loop": factory}


@pytest.fixture(scope="module")
def schema():
    crd = yaml.load(CRD.read_text(), yaml.CSafeLoader)
    return Draft202012Validator(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
