"""The switches of ONNX Runtime's sessions: whichever the table has, in real releases of Python."""

import pytest
from support.runtimes import ort_lab
from support.runtimes.ort_lab import ROW, version

from raddle.planning.policy import FIELDS

pytestmark = ort_lab.MARKS

SWITCHES = [(name, field.path.rpartition(".")[2], field.switch) for name, field in FIELDS.items() if field.switch]
IDS = [key for key, *_ in SWITCHES]
IN_THE_CODE = "set in the code"


@pytest.fixture(scope="module", params=[ort_lab.RELEASES[0], ort_lab.RELEASES[-1]])
def release(request):
    return request.param


@pytest.fixture(scope="module")
def seen(release, lab):
    other = {one.attribute: not one.initial for *_, one in SWITCHES}
    turned = ";".join(f"{key}={int(not one.initial)}" for key, _, one in SWITCHES)
    initial = ";".join(f"{key}={int(one.initial)}" for key, _, one in SWITCHES)
    plans = {
        "planned": (f"intra_op=1;{turned}", [{}]),
        "respect": (f"intra_op=1;{initial}", [other]),
        "override": (f"intra_op=1;{initial};existing_values=override", [other]),
    }
    return lab.probes(release, plans)


@pytest.mark.parametrize(("key", "name", "one"), SWITCHES, ids=IDS)
def test_the_plan_s_value_is_the_session_s_and_the_code_s_object_is_as_before(release, seen, key, name, one, proves):
    proves(ROW, version(release), "memory")
    (session,), (record,) = seen["planned"]["sessions"], seen["planned"]["records"]
    assert session["effective"][one.attribute] is record["effective"][name] is not one.initial
    assert name not in record["because"]
    assert session["after"][one.attribute] is one.initial


@pytest.mark.parametrize(("key", "name", "one"), SWITCHES, ids=IDS)
def test_the_code_s_own_stays_unless_the_policy_overrides(seen, key, name, one):
    for existing, stays in (("respect", True), ("override", False)):
        (session,), (record,) = seen[existing]["sessions"], seen[existing]["records"]
        assert session["effective"][one.attribute] is record["effective"][name] is (stays != one.initial)
        assert record["because"].get(name) == (IN_THE_CODE if stays else None)
