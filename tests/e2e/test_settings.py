"""The files of a node."""

import json
import tomllib
from ipaddress import ip_address, ip_network
from itertools import combinations

import pytest
import yaml

from e2e import guest, settings
from e2e.images import APP_IMAGE, NODE_IMAGE, VENV_IMAGE
from e2e.settings import GUEST, HOST
from raddle.cpus import cpuset
from vm import shapes


def test_the_kubelet_and_containerd_share_a_socket():
    config = yaml.safe_load(settings.kubelet(HOST, "/ca.crt"))
    assert config["containerRuntimeEndpoint"] == f"unix://{tomllib.loads(settings.containerd())['grpc']['address']}"


def test_pods_get_addresses_of_the_nodes_range_which_are_not_translated_so_that_the_firewall_is_left_alone():
    bridge = json.loads(settings.network(HOST))["plugins"][0]
    assert bridge["ipam"]["ranges"] == [[{"subnet": HOST.pod_range}]]
    assert bridge["ipMasq"] is False
    assert yaml.safe_load(settings.kubelet(HOST, "/ca.crt"))["makeIPTablesUtilChains"] is False


def test_no_image_has_a_slash_in_its_name_since_containerd_would_not_find_it_below_library():
    assert not [name for name in (settings.PAUSE_IMAGE, APP_IMAGE, VENV_IMAGE, NODE_IMAGE) if "/" in name]


def test_the_nodes_share_no_address_and_no_cable():
    networks = [ip_network(f"{node.address}/30", strict=False) for node in (HOST, GUEST)]
    networks += [ip_network(node.pod_range) for node in (HOST, GUEST)]
    assert not any(one.overlaps(other) for one, other in combinations(networks, 2))
    assert HOST.cable != GUEST.cable


@pytest.mark.parametrize("node", [HOST, GUEST], ids=lambda node: node.name)
def test_both_ends_of_a_cable_are_in_one_network_and_linux_takes_its_name(node):
    assert ip_address(node.host_address) in ip_network(f"{node.address}/30", strict=False)
    assert len(node.cable) < 16


def test_the_guest_has_the_cpus_of_its_shape_and_keeps_a_whole_core_back():
    shape = shapes.get(guest.SHAPE)
    assert cpuset.parse_list(GUEST.cpus) == (1 << shape.cpus) - 1
    assert cpuset.parse_list(GUEST.reserved_cpus).bit_count() == shape.threads
