"""The files of a node."""

import json
import tomllib

import yaml

from e2e import settings
from e2e.__main__ import HOST


def test_containerd_takes_sandboxes_from_an_image_that_is_there():
    cri = tomllib.loads(settings.containerd())["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["sandbox_image"] == settings.PAUSE_IMAGE


def test_no_image_has_a_slash_in_its_name_since_containerd_would_not_find_it_below_library():
    assert "/" not in settings.PAUSE_IMAGE


def test_a_machine_that_may_not_set_oom_scores_can_start_sandboxes():
    cri = tomllib.loads(settings.containerd())["plugins"]["io.containerd.grpc.v1.cri"]
    assert cri["restrict_oom_score_adj"] is True


def test_the_kubelet_gives_out_exclusive_cpus_and_asks_the_api_server_who_may_call_it():
    config = yaml.safe_load(settings.kubelet(HOST, "/ca.crt"))
    assert (config["cpuManagerPolicy"], config["reservedSystemCPUs"]) == ("static", "0")
    assert config["authentication"] == {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": "/ca.crt"},
    }
    assert config["authorization"] == {"mode": "Webhook"}


def test_the_kubelet_and_containerd_share_a_socket():
    config = yaml.safe_load(settings.kubelet(HOST, "/ca.crt"))
    assert config["containerRuntimeEndpoint"] == f"unix://{tomllib.loads(settings.containerd())['grpc']['address']}"


def test_pods_get_addresses_of_the_nodes_range():
    bridge = json.loads(settings.network(HOST))["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": HOST.pod_range}]]


def test_the_networks_addresses_are_not_translated_so_that_the_firewall_is_left_alone():
    assert json.loads(settings.network(HOST))["plugins"][0]["ipMasq"] is False
    assert yaml.safe_load(settings.kubelet(HOST, "/ca.crt"))["makeIPTablesUtilChains"] is False
