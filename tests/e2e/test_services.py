"""What kube-proxy and the name server of a node are told, without a node."""

import yaml

from e2e import services, settings


def test_kube_proxy_takes_the_nodes_pods_for_local_and_leaves_connection_tracking_alone():
    config = yaml.safe_load(services.proxy(settings.HOST, "/somewhere/kubeconfig"))
    assert config["clusterCIDR"] == settings.HOST.pod_range
    assert config["hostnameOverride"] == settings.HOST.name
    assert config["clientConnection"] == {"kubeconfig": "/somewhere/kubeconfig"}
    assert set(config["conntrack"].values()) == {0, "0s"}


def test_the_name_server_knows_services_by_their_full_names_and_asks_nobody_else():
    command = services.dns({"raddle-webhook.raddle-system": "10.96.3.4"})
    assert "--host-record=raddle-webhook.raddle-system.svc.cluster.local,10.96.3.4" in command
    assert {"--no-resolv", "--no-hosts", "--local=/cluster.local/"} <= set(command)
    assert yaml.safe_load(settings.kubelet(settings.HOST, "ca"))["clusterDNS"] == [settings.DNS_ADDRESS]
