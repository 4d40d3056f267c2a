"""Which literals a container gets, whose volumes stay, and where a shim sends datagrams."""

import pytest
from support.injections import inject, withheld

from cluster import objects
from raddle import env
from raddle.planning import families
from raddle_operator.injection.injected import literals_of
from raddle_operator.objects.reasons import SkipReason

LIMITS = {"limits": {"cpu": "4", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "1Gi"}}
FROM_SECRET = [{"secretRef": {"name": "s"}}]
GO = {"runtimes": ["go"]}
OF_CONFIG_MAP = {"configMapKeyRef": {"name": "c", "key": "k"}}


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


def test_what_raddle_sets_as_a_literal_is_listed_beside_it():
    patched, decision = inject(pod(), {"runtimes": ["openmp", "go"]})
    found = values(patched)
    # Go reads what it is started with; the other is completed in the process.
    assert (found.get("KMP_BLOCKTIME"), found["GOMAXPROCS"]) == (None, "4")
    assert found[env.LITERALS] == "GOMAXPROCS=4;KMP_BLOCKTIME=1"
    assert {"KMP_BLOCKTIME", "GOMAXPROCS"} <= set(decision.containers[0].variables)


def test_a_copy_gets_its_literals_anew():
    patched, _ = inject(pod(), GO)
    patched["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
    again, _ = inject(patched, GO)
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
    patched, _ = inject(pod(), GO)
    patched["spec"]["containers"][0]["env"] = [entry for entry in entries(patched) if entry["name"] != env.LITERALS]
    patched["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}
    again, decision = inject(patched, GO)
    assert values(again)["GOMAXPROCS"] == "4"
    assert decision.containers[0].kept == ("GOMAXPROCS",)


@pytest.mark.parametrize(("existing", "expected"), [("Respect", "7"), ("Override", "4")])
def test_a_variable_that_the_pod_spec_sets_stays_unless_overridden(existing, expected):
    own = [{"name": "GOMAXPROCS", "value": "7"}, {"name": "Z", "value": "z"}]
    patched, decision = inject(pod(container(env=own)), {**GO, "existingValues": existing})
    assert values(patched)["GOMAXPROCS"] == expected
    assert [entry["name"] for entry in entries(patched)][:2] == ["GOMAXPROCS", "Z"]
    assert decision.containers[0].kept == (("GOMAXPROCS",) if existing == "Respect" else ())


def test_a_variable_that_was_there_empty_is_empty_again():
    obj = pod(container(env=[{"name": "GOMAXPROCS", "value": ""}, {"name": "Z", "value": "z"}]))
    patched, _ = inject(obj, GO)
    assert values(patched)["GOMAXPROCS"] == "4"
    assert opted_out(patched, GO) == obj["spec"]


@pytest.mark.parametrize(("existing", "given"), [("Respect", False), ("Override", True)])
def test_with_env_from_there_are_no_literals_unless_the_policy_overrides(existing, given):
    obj = pod(container(envFrom=FROM_SECRET))
    patched, decision = inject(obj, {**GO, "existingValues": existing})
    assert ("GOMAXPROCS" in values(patched)) is given
    # The shim sets it in processes that lack it.
    assert values(patched)[env.LITERALS] == "GOMAXPROCS=4"
    assert [reason for reason, _ in withheld(decision)] == ([] if given else [SkipReason.ENV_FROM_PRESENT])
    assert ("with the shim" in str(withheld(decision))) is not given


def test_with_env_from_and_without_the_shim_nothing_is_listed():
    obj = pod(container(envFrom=FROM_SECRET))
    patched, decision = inject(obj, GO, door=False)
    assert entries(patched) == []
    assert [one.skip.reason for one in decision.containers] == [SkipReason.ENV_FROM_PRESENT]


def test_of_all_families_at_once_each_variable_is_set_once_and_goes_with_the_opt_in():
    spec = {"runtimes": list(families.NAMES)}
    obj = pod()
    patched, decision = inject(obj, spec)
    assert [entry["name"] for entry in entries(patched)] == [env.PLAN, env.LITERALS, "GOMAXPROCS"]
    assert {"GOMAXPROCS", "UV_THREADPOOL_SIZE", "RAYON_NUM_THREADS"} <= set(decision.containers[0].variables)
    assert opted_out(patched, spec) == obj["spec"]
    patched, _ = inject(obj, {**spec, "shim": "None"})
    names = [entry["name"] for entry in entries(patched)]
    assert len(names) == len(set(names))
    assert {"GOMAXPROCS", "UV_THREADPOOL_SIZE", "RAYON_NUM_THREADS"} <= set(names)


JVM = {"runtimes": ["jvm"]}
PROCESSORS = "-XX:ActiveProcessorCount=4"


@pytest.mark.parametrize(
    "own",
    [
        [],
        [{"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g"}],
        [{"name": "JAVA_TOOL_OPTIONS", "value": ""}],
        [{"name": "JAVA_TOOL_OPTIONS", "valueFrom": OF_CONFIG_MAP}],
        [{"name": "JAVA_TOOL_OPTIONS", "value": "-Xss1m"}, {"name": "JAVA_TOOL_OPTIONS", "value": " -Xmx1g"}],
    ],
)
def test_javas_options_stay_as_they_are_and_the_shim_adds_one(own):
    obj = pod(container(env=own))
    patched, decision = inject(obj, JVM)
    assert withheld(decision) == []
    assert [entry for entry in entries(patched) if entry["name"] == "JAVA_TOOL_OPTIONS"] == own
    assert values(patched)[env.LITERALS] == f"JAVA_TOOL_OPTIONS={PROCESSORS}"
    assert "JAVA_TOOL_OPTIONS" in decision.containers[0].variables
    # What `explain -o wide` shows.
    assert literals_of(patched)["serve"]["JAVA_TOOL_OPTIONS"] == PROCESSORS
    assert opted_out(patched, JVM)["containers"][0].get("env", []) == own


@pytest.mark.parametrize(("existing", "kept"), [("Respect", ("JAVA_TOOL_OPTIONS",)), ("Override", ())])
def test_an_option_that_the_pod_spec_sets_stays_unless_overridden(existing, kept):
    own = {"name": "JAVA_TOOL_OPTIONS", "value": PROCESSORS}
    obj = pod(container(env=[own]))
    spec = {**JVM, "existingValues": existing}
    patched, decision = inject(obj, spec)
    assert own in entries(patched)
    assert decision.containers[0].kept == kept
    assert (env.LITERALS in values(patched)) is (existing == "Override")
    assert opted_out(patched, spec) == obj["spec"]


def test_without_the_shim_javas_options_get_nothing_and_a_reason_says_so():
    obj = pod(container(env=[{"name": "JAVA_TOOL_OPTIONS", "value": "-Xmx1g"}]))
    patched, decision = inject(obj, {"runtimes": ["onnxruntime", "jvm"], "shim": "None"})
    assert [reason for reason, _ in withheld(decision)] == [SkipReason.SHIM_MISSING]
    assert "JAVA_TOOL_OPTIONS" in withheld(decision)[0][1]
    assert env.LITERALS not in values(patched)


OWN_SOURCES = [({"emptyDir": {}}, "/data"), ({"configMap": {"name": "raddle-shim-settings"}}, "/opt/raddle")]


@pytest.mark.parametrize(("source", "path"), OWN_SOURCES)
@pytest.mark.parametrize("opt_in", ["enabled", "disabled"])
def test_a_users_own_volume_by_a_name_of_ours_stays(source, path, opt_in):
    volume, mount = {"name": "raddle-shim", **source}, {"name": "raddle-shim", "mountPath": path}
    obj = pod(container(volumeMounts=[mount]), volumes=[volume])
    patched, decision = inject(obj, opt_in=opt_in)
    assert volume in patched["spec"]["volumes"]
    assert [m for m in patched["spec"]["containers"][0]["volumeMounts"] if m["name"] == "raddle-shim"] == [mount]
    if opt_in == "enabled":
        assert SkipReason.SHIM_MISSING in [reason for reason, _ in withheld(decision)]
    assert opted_out(patched, {}) == obj["spec"]


AGENT = "10.96.0.12:8126"


def test_each_container_is_told_where_its_nodes_agent_is_and_as_whom_to_speak():
    obj = pod(container("a"), container("b"), container("istio-proxy"))
    patched, _ = inject(obj, agent=AGENT)
    addresses = [values(patched, name).get(env.AGENT) for name in ("a", "b", "istio-proxy")]
    assert addresses == [AGENT + "/a", AGENT + "/b", None]
    assert f"{env.AGENT}={AGENT}/a" in values(patched, "a")[env.LITERALS]
    # What `explain -o wide` shows.
    assert literals_of(patched)["a"][env.AGENT] == AGENT + "/a"
    without, _ = inject(patched)
    assert without["spec"] == inject(obj)[0]["spec"]


@pytest.mark.parametrize("spec", [{"observe": "None"}, {"shim": "None"}])
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
