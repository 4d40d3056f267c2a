"""How programs find their shim by variables, and which literals a container gets."""

from __future__ import annotations

import copy
import json

import pytest
from support.injections import ITEMS, KNOWN, SHIM, inject, withheld

from cluster import objects
from raddle import delivery, env
from raddle.cpus.topology import Machine
from raddle.planning import families
from raddle.planning.wire import read_plan_text
from raddle_operator.injection.decide import Facts
from raddle_operator.injection.injected import literals_of
from raddle_operator.injection.volumes import SAFE_TO_EVICT, ShimDelivery
from raddle_operator.objects.reasons import SkipReason

LIMITS = {"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}
PYTHON = "/opt/raddle/python"
LIBRARY = "/opt/raddle/native/x86_64/libraddle.so"
OF_CONFIG_MAP = {"configMapKeyRef": {"name": "c", "key": "k"}}
OPTIONAL = {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}
# The policy closes the door.
BY_VARIABLES = {"shim": "ConfigMap"}
NATIVE = {**BY_VARIABLES, "nativeShim": "Preload", "imageEnv": {"LD_PRELOAD": ""}}


def container(name="serve", **parts):
    return {"name": name, "image": "example.test/serve:1", "resources": LIMITS, **parts}


def pod(*containers, **more):
    return objects.pod(*(containers or [container()]), name="p", **more)


def opted_out(patched, spec):
    """The pod spec as a copy of the pod has it where it is opted out; lists that are left empty do not count."""
    found, _ = inject(patched, spec, opt_in="disabled")
    for one in (found["spec"], *found["spec"]["containers"]):
        for field in ("volumes", "volumeMounts"):
            if one.get(field) == []:
                del one[field]
    return found["spec"]


def entries(patched, name="serve"):
    """The container's entries, in order."""
    containers = patched["spec"]["containers"] + patched["spec"].get("initContainers", [])
    return next(c for c in containers if c["name"] == name).get("env", [])


def values(patched, name="serve"):
    """Variable -> literal value, or the source that it comes from."""
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in entries(patched, name)}


# --- PYTHONPATH and LD_PRELOAD: one list, three ways to know it -----------------------------------------------------

EXTENDED = [
    ("PYTHONPATH", PYTHON, ":", BY_VARIABLES),
    ("LD_PRELOAD", LIBRARY, ":", {**BY_VARIABLES, "nativeShim": "Preload"}),
]


def about(name, decision):
    """The reasons that name a variable."""
    return [(reason, detail) for reason, detail in withheld(decision) if name in detail]


@pytest.mark.parametrize(("name", "part", "separator", "spec"), EXTENDED)
@pytest.mark.parametrize("own", ["--max-old-space-size=64", "$(BASE)/x", "a b", "/lib/a.so"])
def test_a_text_in_the_pod_spec_is_extended_where_it_stands(name, part, separator, spec, own):
    obj = pod(
        container(env=[{"name": "BASE", "value": "b"}, {"name": name, "value": own}, {"name": "Z", "value": "z"}])
    )
    patched, _ = inject(obj, spec)
    assert entries(patched)[1] == {"name": name, "value": f"{part}{separator}{own}"}
    assert [entry["name"] for entry in entries(patched)][:3] == ["BASE", name, "Z"]
    assert opted_out(patched, spec) == obj["spec"]


@pytest.mark.parametrize(("name", "part", "separator", "spec"), EXTENDED)
def test_an_empty_text_becomes_ours_alone(name, part, separator, spec):
    obj = pod(container(env=[{"name": name, "value": ""}]))
    assert values(inject(obj, spec)[0])[name] == part


@pytest.mark.parametrize(("name", "part", "separator", "spec"), EXTENDED)
@pytest.mark.parametrize(("stated", "rest"), [("", ""), ("/own", "/own"), ("/$LIB/a.so", "/$$LIB/a.so")])
def test_what_the_policy_states_of_the_image_is_extended(name, part, separator, spec, stated, rest):
    patched, _ = inject(pod(), {**spec, "imageEnv": {name: stated}})
    # Kubernetes makes one $ of two.
    assert values(patched)[name] == (f"{part}{separator}{rest}" if rest else part)


@pytest.mark.parametrize(("name", "part", "separator", "spec"), EXTENDED)
def test_a_required_reference_is_kept_under_another_name(name, part, separator, spec):
    obj = pod(container(env=[{"name": name, "valueFrom": OF_CONFIG_MAP}]))
    patched, _ = inject(obj, spec)
    assert entries(patched)[:2] == [
        {"name": f"ORIGINAL_{name}", "valueFrom": OF_CONFIG_MAP},
        {"name": name, "value": f"{part}{separator}$(ORIGINAL_{name})"},
    ]
    assert opted_out(patched, spec) == obj["spec"]


@pytest.mark.parametrize(("name", "part", "separator", "spec"), EXTENDED)
@pytest.mark.parametrize(
    "env_entries",
    [
        [{"name": "{}", "valueFrom": OPTIONAL}],
        [{"name": "ORIGINAL_{}", "value": "mine"}, {"name": "{}", "valueFrom": OF_CONFIG_MAP}],
    ],
)
def test_what_can_not_be_kept_is_left_alone_with_a_reason(name, part, separator, spec, env_entries):
    given = [{**entry, "name": entry["name"].format(name)} for entry in env_entries]
    patched, decision = inject(pod(container(env=given)), spec)
    assert entries(patched)[: len(given)] == given
    ((reason, _),) = about(name, decision)
    assert reason is SkipReason.IMAGE_ENV_UNKNOWN


@pytest.mark.parametrize(("name", "part", "separator", "spec"), EXTENDED)
@pytest.mark.parametrize("existing", ["Respect", "Override"])
def test_env_from_may_hide_the_list_so_it_is_not_replaced_by_the_images(name, part, separator, spec, existing):
    policy = {**spec, "imageEnv": {name: "/x"}, "existingValues": existing}
    seen = [{"name": other, "value": "/seen"} for other in ("PYTHONPATH", "LD_PRELOAD") if other != name]
    hidden = {"envFrom": [{"secretRef": {"name": "s"}}]}
    patched, decision = inject(pod(container(**hidden, env=seen)), {**policy, "nativeShim": "Preload"})
    assert (name in values(patched)) is (existing == "Override")
    reasons = [reason for reason, _ in about(name, decision)]
    assert reasons == ([] if existing == "Override" else [SkipReason.ENV_FROM_PRESENT])
    in_spec = pod(container(**hidden, env=[{"name": name, "value": "x"}]))
    assert part in values(inject(in_spec, policy)[0])[name]


@pytest.mark.parametrize(
    ("facts", "shim", "reason"),
    [
        (KNOWN, ShimDelivery(config_map="raddle-shim-0123456789", items=ITEMS), "this build has no"),
        (Facts(config_map_present=False), SHIM, "no ConfigMap"),
    ],
)
def test_a_file_that_lacks_is_never_named(facts, shim, reason):
    obj = pod(container(env=[{"name": "LD_PRELOAD", "value": "mine"}], command=["java"]))
    patched, decision = inject(obj, NATIVE, facts=facts, shim=shim)
    assert values(patched)["LD_PRELOAD"] == "mine"
    assert [(found, reason in detail) for found, detail in withheld(decision)] == [(SkipReason.SHIM_MISSING, True)]


def test_a_native_shim_without_its_files_is_a_contradiction_that_is_told():
    patched, decision = inject(pod(), {**NATIVE, "shim": "None"})
    assert "LD_PRELOAD" not in values(patched)
    ((reason, detail),) = withheld(decision)
    assert reason is SkipReason.SHIM_MISSING
    assert "shim is None" in detail


@pytest.mark.parametrize("way", ["ImageVolume", "InitContainer"])
def test_what_brings_the_files_before_the_start_needs_no_config_map(way):
    spec = {"shim": way, "nativeShim": "Preload", "imageEnv": {"LD_PRELOAD": "", "PYTHONPATH": ""}}
    patched, decision = inject(pod(), spec, facts=Facts(config_map_present=False, architectures=KNOWN.architectures))
    assert values(patched)["PYTHONPATH"] == PYTHON
    assert values(patched)["LD_PRELOAD"] == LIBRARY
    assert withheld(decision) == []


# --- what other webhooks do to the same lists -----------------------------------------------------------------------

JAVA = ("JAVA_TOOL_OPTIONS", "-XX:ActiveProcessorCount=4", " ", {"runtimes": ["jvm"]})
LISTS = [*EXTENDED, JAVA]


def edited(patched, name, change):
    """A copy of the pod in which another webhook has changed one variable's text."""
    found = copy.deepcopy(patched)
    entry = next(entry for entry in entries(found) if entry["name"] == name)
    entry["value"] = change(entry["value"])
    return found


@pytest.mark.parametrize(("name", "part", "separator", "spec"), LISTS)
@pytest.mark.parametrize("in_spec", [True, False])
@pytest.mark.parametrize("own", ["/own", ""])
@pytest.mark.parametrize("where", ["before", "behind", "both"])
def test_what_another_webhook_adds_to_a_list_of_ours_stays(name, part, separator, spec, in_spec, own, where):
    obj = pod(container(env=[{"name": name, "value": own}])) if in_spec else pod()
    spec = spec if in_spec else {**spec, "imageEnv": {name: own}}
    before = ["/first"] if where != "behind" else []
    behind = ["/last"] if where != "before" else []
    changed = edited(inject(obj, spec)[0], name, lambda text: separator.join([*before, text, *behind]))
    again, _ = inject(changed, spec)
    words = values(again)[name].split(separator)
    theirs = [*before, *([own] if own else []), *behind]
    ours = part.split(separator)
    assert words == ([*theirs, *ours] if name == "JAVA_TOOL_OPTIONS" else [*ours, *theirs])
    left = next(c for c in opted_out(again, spec)["containers"] if c["name"] == "serve")
    assert left["env"] == [{"name": name, "value": separator.join(theirs)}]


@pytest.mark.parametrize(("name", "part", "separator", "spec"), LISTS)
def test_a_list_that_raddle_added_goes_where_nobody_has_changed_it(name, part, separator, spec):
    spec = {**spec, "imageEnv": {name: "/own"}}
    patched, _ = inject(pod(), spec)
    assert part in values(patched)[name].split(f"{separator}/own") + values(patched)[name].split(f"/own{separator}")
    assert opted_out(patched, spec) == pod()["spec"]


@pytest.mark.parametrize(("name", "part", "separator", "spec"), LISTS)
def test_a_part_of_ours_that_stands_twice_goes_twice(name, part, separator, spec):
    obj = pod(container(env=[{"name": name, "value": "/own"}]))
    doubled = edited(inject(obj, spec)[0], name, lambda text: separator.join([text, part, part]))
    assert opted_out(doubled, spec) == obj["spec"]


def test_a_reference_that_another_webhook_adds_to_keeps_what_it_refers_to():
    obj = pod(container(env=[{"name": "PYTHONPATH", "valueFrom": OF_CONFIG_MAP}]))
    changed = edited(inject(obj, BY_VARIABLES)[0], "PYTHONPATH", lambda text: f"/otel:{text}")
    kept = [
        {"name": "ORIGINAL_PYTHONPATH", "valueFrom": OF_CONFIG_MAP},
        {"name": "PYTHONPATH", "value": "/otel:$(ORIGINAL_PYTHONPATH)"},
    ]
    assert values(inject(changed, BY_VARIABLES)[0])["PYTHONPATH"] == f"{PYTHON}:{kept[1]['value']}"
    assert opted_out(changed, {})["containers"][0]["env"] == kept


def test_only_whole_words_are_ours():
    own = [
        {"name": "PYTHONPATH", "value": "/opt/raddle/python3:/x/opt/raddle/python"},
        {"name": "NODE_OPTIONS", "value": "--require /opt/raddle/node/raddle.cjs.map"},
    ]
    obj = pod(container(env=own))
    assert opted_out(obj, {}) == obj["spec"]
    assert opted_out(inject(obj)[0], {}) == obj["spec"]


def test_a_list_that_is_set_twice_keeps_both():
    own = [{"name": "JAVA_TOOL_OPTIONS", "value": "-Xss1m"}, {"name": "JAVA_TOOL_OPTIONS", "value": " -Xmx1g"}]
    obj = pod(container(env=own))
    patched, _ = inject(obj, {"runtimes": ["jvm"]})
    assert entries(patched)[:2] == [own[0], {"name": "JAVA_TOOL_OPTIONS", "value": f" -Xmx1g {JAVA[1]}"}]
    assert opted_out(patched, {"runtimes": ["jvm"]}) == obj["spec"]


# --- who runs Node.js and Java --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ({"command": ["node", "server.js"]}, "node"),
        ({"command": ["/usr/local/bin/node"], "args": ["."]}, "node"),
        ({"args": ["npm", "start"]}, "npm"),
        ({"command": ["sh", "-c", "cd /app && exec yarn start"]}, "yarn"),
        ({"command": ["java", "-jar", "app.jar"]}, "java"),
    ],
)
def test_a_program_that_only_the_native_shim_reaches_has_variables_where_the_door_is_closed(command, runs):
    own = [{"name": "PYTHONPATH", "value": "/helpers"}]
    patched, decision = inject(pod(container(**command, env=own)), BY_VARIABLES)
    assert withheld(decision) == [
        (SkipReason.SHIM_MISSING, f"{runs} has it by the door, or with nativeShim Preload in the policy")
    ]
    # Python's way is there all the same, but nothing stops that program's pool from spinning: the plan reckons with it.
    assert values(patched)["PYTHONPATH"] == f"{PYTHON}:/helpers"
    assert decision.containers[0].plan.intra_op == 3
    _, stated = inject(pod(container(**command)), NATIVE)
    assert withheld(stated) == []
    assert stated.containers[0].plan.intra_op == 4


@pytest.mark.parametrize("command", [{}, {"command": ["python", "node.py"]}, {"command": ["sh", "-c", "./nodejs-app"]}])
def test_of_a_container_that_says_nothing_of_node_nothing_is_said(command):
    _, decision = inject(pod(container(**command)), {**BY_VARIABLES, "imageEnv": {"PYTHONPATH": ""}})
    assert withheld(decision) == []


def test_what_an_earlier_version_gave_node_goes():
    before = {"name": "NODE_OPTIONS", "value": "--require /opt/raddle/node/raddle.cjs --max-old-space-size=64"}
    patched, _ = inject(pod(container(env=[before], command=["node", "."])))
    assert values(patched)["NODE_OPTIONS"] == "--max-old-space-size=64"


# --- the native shim ------------------------------------------------------------------------------------------------


def test_nothing_is_preloaded_unless_the_policy_asks():
    own = [{"name": "LD_PRELOAD", "value": "/lib/a.so"}]
    stated = {**BY_VARIABLES, "imageEnv": {"LD_PRELOAD": "/lib/b.so", "PYTHONPATH": ""}}
    patched, decision = inject(pod(container(env=own)), stated)
    assert entries(patched)[0] == own[0]
    assert withheld(decision) == []


@pytest.mark.parametrize("spec", [{"nativeShim": "Preload"}, {"allocator": "Jemalloc"}])
def test_who_asks_without_saying_what_the_image_preloads_is_told_what_to_write(spec):
    spec = {**BY_VARIABLES, **spec}
    patched, decision = inject(pod(), spec)
    assert "LD_PRELOAD" not in values(patched)
    ((reason, _),) = about("imageEnv.LD_PRELOAD", decision)
    assert reason is SkipReason.IMAGE_ENV_UNKNOWN
    assert values(inject(pod(), {**spec, "imageEnv": {"LD_PRELOAD": ""}})[0])["LD_PRELOAD"] == LIBRARY


@pytest.mark.parametrize("spec", [{"nativeShim": "Preload"}, {"allocator": "Jemalloc"}])
def test_by_the_door_nobody_has_to_say_what_the_image_preloads(spec):
    own = [{"name": "LD_PRELOAD", "value": "/lib/a.so"}]
    patched, decision = inject(pod(container(env=own)), spec)
    assert values(patched)["LD_PRELOAD"] == "/lib/a.so"
    assert withheld(decision) == []


def required(*terms):
    """Required node affinity with one term for each list of architectures."""
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": list(names)}]}
                    for names in terms
                ]
            }
        }
    }


BOTH = frozenset({"x86_64", "aarch64"})
ARM = Machine(online=0b11, cores=(1, 2), architecture="aarch64")


@pytest.mark.parametrize(
    ("placed", "facts", "expected"),
    [
        ({}, Facts(architectures=frozenset({"aarch64"})), "aarch64"),
        ({}, Facts(architectures=BOTH), None),
        ({}, Facts(), None),
        ({"nodeSelector": {"kubernetes.io/arch": "arm64"}}, Facts(architectures=BOTH), "aarch64"),
        ({"nodeSelector": {"kubernetes.io/arch": "amd64"}}, Facts(), "x86_64"),
        ({"affinity": required(["amd64"], ["amd64"])}, Facts(architectures=BOTH), "x86_64"),
        ({"affinity": required(["amd64"], ["arm64"])}, Facts(architectures=BOTH), None),
        ({"affinity": required(["amd64", "arm64"])}, Facts(architectures=BOTH), None),
        ({"nodeName": "n1"}, Facts(architectures=BOTH, machines={"n1": ARM}), "aarch64"),
        ({"nodeName": "n2"}, Facts(architectures=BOTH, machines={"n1": ARM}), None),
    ],
)
def test_the_architecture_is_the_nodes_the_pods_wish_or_the_only_one(placed, facts, expected):
    patched, decision = inject(pod(container(command=["java"]), **placed), NATIVE, facts=facts)
    if expected is None:
        assert [reason for reason, _ in withheld(decision)] == [SkipReason.ARCHITECTURE_UNKNOWN]
        assert "LD_PRELOAD" not in values(patched)
    else:
        assert values(patched)["LD_PRELOAD"] == delivery.native_library(expected)


def test_an_architecture_that_nothing_was_built_for_is_named():
    _, decision = inject(pod(container(command=["java"]), nodeSelector={"kubernetes.io/arch": "s390x"}), NATIVE)
    assert withheld(decision) == [(SkipReason.SHIM_MISSING, "this build has no native shim for s390x")]


def test_a_copy_for_another_architecture_preloads_that_ones_library_only():
    patched, _ = inject(pod(container(env=[{"name": "LD_PRELOAD", "value": "/lib/a.so"}])), NATIVE)
    patched["spec"]["nodeSelector"] = {"kubernetes.io/arch": "arm64"}
    again, _ = inject(patched, NATIVE)
    assert values(again)["LD_PRELOAD"] == f"{delivery.native_library('aarch64')}:/lib/a.so"


def test_a_java_process_is_reached_by_the_native_shim_only():
    java = pod(container(command=["java", "-jar", "app.jar"]))

    def controlled(spec):
        text = inject(java, spec)[0]["metadata"]["annotations"]["plan.raddle.dev/serve"]
        return read_plan_text(text).budget.shim

    assert not controlled(BY_VARIABLES)
    assert controlled(NATIVE)
    assert controlled({})


# --- literals -------------------------------------------------------------------------------------------------------


def test_what_raddle_sets_as_a_literal_is_listed_beside_it():
    patched, decision = inject(pod(), {"runtimes": ["openmp", "go"]})
    found = values(patched)
    assert (found["KMP_BLOCKTIME"], found["GOMAXPROCS"]) == ("1", "4")
    assert found[env.LITERALS] == "KMP_BLOCKTIME=1;GOMAXPROCS=4"
    assert {"KMP_BLOCKTIME", "GOMAXPROCS"} <= set(decision.containers[0].variables)


def test_a_copy_gets_its_literals_anew():
    spec = {"runtimes": ["go"]}
    patched, _ = inject(pod(), spec)
    patched["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
    again, _ = inject(patched, spec)
    assert values(again)["GOMAXPROCS"] == "2"
    assert [entry["name"] for entry in entries(again)].count("GOMAXPROCS") == 1


def test_a_literal_that_somebody_changed_since_is_theirs():
    spec = {"runtimes": ["openmp", "go"]}
    patched, _ = inject(pod(), spec)
    next(entry for entry in entries(patched) if entry["name"] == "GOMAXPROCS")["value"] = "7"
    again, decision = inject(patched, spec)
    assert values(again)["GOMAXPROCS"] == "7"
    assert values(again)[env.LITERALS] == "KMP_BLOCKTIME=1"
    assert decision.containers[0].kept == ("GOMAXPROCS",)


def test_without_the_list_a_literal_is_the_users():
    spec = {"runtimes": ["go"]}
    patched, _ = inject(pod(), spec)
    patched["spec"]["containers"][0]["env"] = [entry for entry in entries(patched) if entry["name"] != env.LITERALS]
    patched["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
    again, decision = inject(patched, spec)
    assert values(again)["GOMAXPROCS"] == "4"
    assert decision.containers[0].kept == ("GOMAXPROCS",)


@pytest.mark.parametrize(("existing", "expected"), [("Respect", "7"), ("Override", "4")])
def test_a_variable_that_the_pod_spec_sets_stays_unless_overridden(existing, expected):
    own = [{"name": "GOMAXPROCS", "value": "7"}, {"name": "Z", "value": "z"}]
    patched, decision = inject(pod(container(env=own)), {"runtimes": ["go"], "existingValues": existing})
    assert values(patched)["GOMAXPROCS"] == expected
    assert [entry["name"] for entry in entries(patched)][:2] == ["GOMAXPROCS", "Z"]
    assert decision.containers[0].kept == (("GOMAXPROCS",) if existing == "Respect" else ())


def test_a_variable_that_was_there_empty_is_empty_again():
    obj = pod(container(env=[{"name": "GOMAXPROCS", "value": ""}, {"name": "Z", "value": "z"}]))
    patched, _ = inject(obj, {"runtimes": ["go"]})
    assert values(patched)["GOMAXPROCS"] == "4"
    assert opted_out(patched, {"runtimes": ["go"]}) == obj["spec"]


@pytest.mark.parametrize(("existing", "given"), [("Respect", False), ("Override", True)])
@pytest.mark.parametrize("shim", ["Auto", "ConfigMap"])
def test_with_env_from_there_are_no_literals_unless_the_policy_overrides(existing, given, shim):
    own = [{"name": "PYTHONPATH", "value": "/app"}]
    obj = pod(container(envFrom=[{"secretRef": {"name": "s"}}], env=own))
    patched, decision = inject(obj, {"runtimes": ["go"], "existingValues": existing, "shim": shim})
    assert ("GOMAXPROCS" in values(patched)) is given
    # Behind the door the shim sets it in processes that lack it.
    listed = {"GOMAXPROCS=4"} if given or shim == "Auto" else set()
    assert set(values(patched).get(env.LITERALS, "").split(";")) - {""} == listed
    assert [reason for reason, _ in withheld(decision)] == ([] if given else [SkipReason.ENV_FROM_PRESENT])
    assert ("with the shim" in str(withheld(decision))) is (not given and shim == "Auto")


def test_of_all_families_at_once_each_variable_is_set_once_and_goes_with_the_opt_in():
    spec = {"runtimes": list(families.NAMES), "imageEnv": {"JAVA_TOOL_OPTIONS": "-Xmx1g"}}
    obj = pod()
    patched, _ = inject(obj, spec)
    names = [entry["name"] for entry in entries(patched)]
    assert len(names) == len(set(names))
    assert {"GOMAXPROCS", "UV_THREADPOOL_SIZE", "JAVA_TOOL_OPTIONS", "RAYON_NUM_THREADS"} <= set(names)
    assert opted_out(patched, spec) == obj["spec"]


JVM = {"runtimes": ["jvm"]}
PROCESSORS = "-XX:ActiveProcessorCount=4"


@pytest.mark.parametrize(
    ("own", "image_env", "expected"),
    [
        ([("-Xmx1g", None)], {}, f"-Xmx1g {PROCESSORS}"),
        ([("", None)], {}, PROCESSORS),
        ([], {"JAVA_TOOL_OPTIONS": "-Xmx1g"}, f"-Xmx1g {PROCESSORS}"),
        ([], {"JAVA_TOOL_OPTIONS": ""}, PROCESSORS),
        ([(None, OF_CONFIG_MAP)], {}, f"$(ORIGINAL_JAVA_TOOL_OPTIONS) {PROCESSORS}"),
    ],
)
@pytest.mark.parametrize("shim", ["Auto", "None"])
def test_javas_options_are_extended_and_can_be_taken_back(own, image_env, expected, shim):
    given = [
        {"name": "JAVA_TOOL_OPTIONS", **({"value": value} if source is None else {"valueFrom": source})}
        for value, source in own
    ]
    obj = pod(container(env=given)) if given else pod()
    spec = {**JVM, "imageEnv": image_env, "shim": shim}
    patched, _ = inject(obj, spec)
    assert values(patched)["JAVA_TOOL_OPTIONS"] == expected
    listed, *added = values(patched)[env.LITERALS].split(";")
    assert listed == f"JAVA_TOOL_OPTIONS={PROCESSORS}"
    assert [part.partition("#")[0] for part in added] == ([] if given else ["JAVA_TOOL_OPTIONS"])
    assert opted_out(patched, spec) == obj["spec"]


def test_javas_options_from_an_optional_reference_are_left_alone():
    own = {"name": "JAVA_TOOL_OPTIONS", "valueFrom": OPTIONAL}
    patched, decision = inject(pod(container(env=[own])), {"runtimes": ["onnxruntime", "jvm"], "shim": "None"})
    assert entries(patched)[0] == own
    assert [reason for reason, _ in withheld(decision)] == [SkipReason.IMAGE_ENV_UNKNOWN]


@pytest.mark.parametrize("own", [[], [{"name": "JAVA_TOOL_OPTIONS", "valueFrom": OPTIONAL}]])
def test_behind_the_door_the_shim_adds_to_javas_options_that_nobody_here_knows(own):
    obj = pod(container(env=own))
    patched, decision = inject(obj, JVM)
    assert withheld(decision) == []
    assert [entry for entry in entries(patched) if entry["name"] == "JAVA_TOOL_OPTIONS"] == own
    assert values(patched)[env.LITERALS] == f"JAVA_TOOL_OPTIONS={PROCESSORS}"
    assert "JAVA_TOOL_OPTIONS" in decision.containers[0].variables
    assert opted_out(patched, JVM)["containers"][0].get("env", []) == own


def test_options_that_another_webhook_sets_since_are_extended_and_can_be_taken_back():
    patched, _ = inject(pod(), JVM)
    entries(patched).append({"name": "JAVA_TOOL_OPTIONS", "value": "-javaagent:/otel.jar"})
    again, _ = inject(patched, JVM)
    assert values(again)["JAVA_TOOL_OPTIONS"] == f"-javaagent:/otel.jar {PROCESSORS}"
    assert values(again)[env.LITERALS] == f"JAVA_TOOL_OPTIONS={PROCESSORS}"
    left = opted_out(again, JVM)["containers"][0]["env"]
    assert left == [{"name": "JAVA_TOOL_OPTIONS", "value": "-javaagent:/otel.jar"}]


# --- the volume's place -----------------------------------------------------------------------------------------------


COPIED = {"shim": "InitContainer", "imageEnv": {"PYTHONPATH": ""}}


def test_the_autoscaler_is_told_of_all_local_volumes():
    before = {SAFE_TO_EVICT: "cache"}
    patched, _ = inject(pod(annotations=before), COPIED)
    assert patched["metadata"]["annotations"][SAFE_TO_EVICT] == "cache,raddle-shim"


@pytest.mark.parametrize("before", [{}, {SAFE_TO_EVICT: "cache"}, {SAFE_TO_EVICT: "cache, other"}])
def test_the_autoscaler_is_told_of_ours_no_longer_than_they_are_there(before):
    patched, _ = inject(pod(annotations=before), COPIED)
    assert "raddle-shim" in patched["metadata"]["annotations"][SAFE_TO_EVICT]
    without, _ = inject(patched, COPIED, opt_in="disabled")
    assert without["metadata"]["annotations"] == before
    mounted, _ = inject(patched)
    assert "raddle-shim" not in mounted["metadata"]["annotations"].get(SAFE_TO_EVICT, "").split(",")


OWN_FOLDERS = [
    ({"name": "raddle-shim", "emptyDir": {}}, "/data"),
    ({"name": "raddle-shim", "emptyDir": {"sizeLimit": "16Mi"}}, "/data"),
    ({"name": "raddle-shim", "image": {"reference": "example.test/models:1"}}, "/models"),
    ({"name": "raddle-shim", "configMap": {"name": "raddle-shim-settings"}}, "/opt/raddle"),
]


@pytest.mark.parametrize(("volume", "path"), OWN_FOLDERS)
@pytest.mark.parametrize("opt_in", ["enabled", "disabled"])
def test_a_users_own_volume_by_a_name_of_ours_stays(volume, path, opt_in):
    mount = {"name": volume["name"], "mountPath": path}
    obj = pod(
        container(volumeMounts=[mount]),
        annotations={SAFE_TO_EVICT: volume["name"]},
        volumes=[volume],
    )
    patched, decision = inject(obj, opt_in=opt_in)
    assert volume in patched["spec"]["volumes"]
    assert [m for m in patched["spec"]["containers"][0]["volumeMounts"] if m["name"] == volume["name"]] == [mount]
    assert volume["name"] in patched["metadata"]["annotations"][SAFE_TO_EVICT]
    if opt_in == "enabled":
        assert SkipReason.SHIM_MISSING in [reason for reason, _ in withheld(decision)]
    assert opted_out(patched, {}) == obj["spec"]


# --- the node's agent -----------------------------------------------------------------------------------------------

AGENT = "10.96.0.12:8126"


def test_each_container_is_told_where_its_nodes_agent_is_and_as_whom_to_speak():
    obj = pod(container("a"), container("b"), container("istio-proxy"))
    patched, _ = inject(obj, agent=AGENT)
    assert {name: values(patched, name).get(env.AGENT) for name in ("a", "b", "istio-proxy")} == {
        "a": AGENT + "/a",
        "b": AGENT + "/b",
        "istio-proxy": None,
    }
    assert f"{env.AGENT}={AGENT}/a" in values(patched, "a")[env.LITERALS]
    # What `explain -o wide` shows.
    assert literals_of(patched)["a"][env.AGENT] == AGENT + "/a"
    without, _ = inject(patched)
    assert without["spec"] == inject(obj)[0]["spec"]


@pytest.mark.parametrize("spec", [{"observe": "None"}, {"shim": "None"}, {**BY_VARIABLES, "nativeShim": "Disabled"}])
def test_a_container_that_has_nothing_to_tell_is_not_told_of_the_agent(spec):
    patched, _ = inject(pod(), spec, agent=AGENT)
    assert env.AGENT not in values(patched)


def test_an_agent_that_the_user_names_stays():
    own = {"name": env.AGENT, "value": "127.0.0.1:9"}
    patched, _ = inject(pod(container(env=[own])), agent=AGENT)
    assert own in entries(patched)
    assert env.AGENT not in values(patched).get(env.LITERALS, "")


def test_another_agent_address_takes_the_place_of_the_former_one():
    before, _ = inject(pod(), agent="10.0.0.1:8126")
    after, _ = inject(before, agent=AGENT)
    assert after["spec"] == inject(pod(), agent=AGENT)[0]["spec"]


# --- together -------------------------------------------------------------------------------------------------------


def test_with_everything_on_a_container_still_grows_by_little():
    spec = {
        "nativeShim": "Preload",
        "imageEnv": {"LD_PRELOAD": "", "JAVA_TOOL_OPTIONS": "", "PYTHONPATH": ""},
        "shim": "ConfigMap",
        "runtimes": list(families.NAMES),
    }

    def size(*containers):
        return len(json.dumps(inject(pod(*containers), spec)[0], separators=(",", ":")))

    assert size(container("a"), container("b")) - size(container("a")) < 4096
