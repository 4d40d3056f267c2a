"""What the Headlamp plugin's own tests read: made of Raddle's types, so that the plugin reads what Raddle writes."""

import json
from dataclasses import asdict

from support import watched

from raddle_operator.injection.explain import explain
from raddle_operator.objects import nodereport

HOSTILE = {
    "plan.raddle.dev/broken": "{",
    "plan.raddle.dev/newer": '{"v": 2}',
    "plan.raddle.dev/list": '{"v":1,"set":[]}',
    "plan.raddle.dev/mere": '{"v":1}',
    "threads.raddle.dev/alone": "4",
}
# What the plugin shows of an explanation; its words for a plan that can't be read are its own.
READ = ("container", "governed_by", "node", "planned_cpus", "values", "because")


def explained(annotations):
    """What `kubectl raddle explain` reads in the annotations."""
    found = [asdict(one) for one in explain(annotations)]
    return [{**{name: one[name] for name in READ}, "readable": not one["problem"]} for one in found]


def test_the_plugin_is_tested_with_what_raddle_writes(golden):
    pods = [watched.pod(name) for name in watched.PODS]
    given = {pod["metadata"]["name"]: explained(pod["metadata"]["annotations"]) for pod in pods}
    fixture = {
        "pods": pods,
        "explained": given,
        "hostile": {"annotations": HOSTILE, "explained": explained(HOSTILE)},
        "topologies": [watched.topology(node) for node in watched.MACHINES],
        "report": nodereport.to_document(watched.report()),
        "running": watched.statuses(),
    }
    golden("watched.json", json.dumps(fixture, indent=1, ensure_ascii=False) + "\n")


def test_the_report_is_one_that_raddle_reads():
    document = nodereport.to_document(watched.report())
    assert nodereport.from_document(document) == watched.report()
