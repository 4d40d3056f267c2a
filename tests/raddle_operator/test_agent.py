import base64
import datetime as dt
import http.server
import json
import ssl
import threading

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import machines
from raddle.cpus import cpuset
from raddle.cpus.topology import Kubelet
from raddle.machine.sysfs import read_machine
from raddle_operator.agent import client, watching
from raddle_operator.agent.client import ApiError, ConfigError, from_kubeconfig, in_cluster
from raddle_operator.agent.governed import GovernedContainer, GovernedPod
from raddle_operator.agent.kubelet import KubeletReader
from raddle_operator.agent.kubelet_config import parse_configz
from raddle_operator.agent.process import difference
from raddle_operator.agent.reflector import Backoff
from raddle_operator.agent.samples import Sample
from raddle_operator.agent.settings import AgentSettings
from raddle_operator.objects.nodereport import Level
from raddle_operator.objects.nodetopology import to_object

ALL = cpuset.parse_list("0-31")


@pytest.fixture(scope="module")
def wanted():
    return to_object(read_machine(machines.path("2s16c32t")), "worker", "uid-1")


# --- what is wrong with a live object ----------------------------------------------------------------------------


def test_what_was_written_needs_no_writing(wanted):
    live = wanted | {
        "metadata": wanted["metadata"] | {"resourceVersion": "7", "labels": {"a": "b"}},
        "status": {"x": 1},
    }
    assert difference(live, wanted) == ""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda live: None, "missing"),
        (lambda live: live | {"spec": live["spec"] | {"model": "other"}}, "content"),
        (lambda live: live | {"spec": live["spec"] | {"extra": 1}}, "content"),
        (lambda live: {key: value for key, value in live.items() if key != "spec"}, "content"),
        (lambda live: live | {"metadata": {"name": "worker"}}, "owner"),
        (lambda live: live | {"metadata": {"ownerReferences": [{"uid": "uid-0"}]}}, "owner"),
        (lambda live: live | {"metadata": {"ownerReferences": [{"uid": "uid-1"}, {"uid": "uid-0"}]}}, "owner"),
    ],
)
def test_each_difference_has_a_name(wanted, change, reason):
    assert difference(change(wanted), wanted) == reason


def test_the_object_goes_with_its_node_and_does_not_hold_it_back(wanted):
    assert wanted["metadata"] == {
        "name": "worker",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "worker", "uid": "uid-1"}],
    }


# --- the kubelet's settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "kubelet"),
    [
        (
            {
                "cpuManagerPolicy": "static",
                "cpuManagerPolicyOptions": {"full-pcpus-only": "true", "align-by-socket": "false"},
                "topologyManagerPolicy": "single-numa-node",
                "topologyManagerScope": "pod",
                "topologyManagerPolicyOptions": {"prefer-closest-numa-nodes": "true"},
                "reservedSystemCPUs": "0-1,16",
                "cpuManagerReconcilePeriod": "10s",
            },
            Kubelet(
                "static",
                (("align-by-socket", "false"), ("full-pcpus-only", "true")),
                "single-numa-node",
                cpuset.parse_list("0-1,16"),
                "pod",
                (("prefer-closest-numa-nodes", "true"),),
                "Configz",
            ),
        ),
        (
            {"cpuManagerPolicy": "none", "topologyManagerPolicy": "none"},
            Kubelet("none", (), "none", source="Configz"),
        ),
        ({"cpuManagerPolicy": "None", "topologyManagerPolicy": ""}, Kubelet("none", (), "none", source="Configz")),
        # A static policy without a list reserves CPUs of its own choice.
        ({"cpuManagerPolicy": "static", "reservedSystemCPUs": ""}, Kubelet("static", source="Configz")),
        (
            {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}, "systemReserved": {"cpu": "500m"}},
            Kubelet("static", source="Configz"),
        ),
        (
            {"cpuManagerPolicy": "quantum", "topologyManagerPolicy": 7, "topologyManagerScope": "rack"},
            Kubelet(source="Configz"),
        ),
        (
            {"cpuManagerPolicyOptions": [1], "reservedSystemCPUs": "all", "topologyManagerScope": None},
            Kubelet(source="Configz"),
        ),
        (
            {"cpuManagerPolicyOptions": {"a": 1, "b": "x" * 300, "c": "d"}},
            Kubelet(cpu_manager_policy_options=(("c", "d"),), source="Configz"),
        ),
        # What keeps threads on whole cores and beside one L3: carried as it is, whatever comes in later releases.
        (
            {
                "cpuManagerPolicy": "static",
                "cpuManagerPolicyOptions": {
                    "distribute-cpus-across-numa": "true",
                    "prefer-align-cpus-by-uncorecache": "true",
                    "strict-cpu-reservation": "true",
                },
            },
            Kubelet(
                "static",
                (
                    ("distribute-cpus-across-numa", "true"),
                    ("prefer-align-cpus-by-uncorecache", "true"),
                    ("strict-cpu-reservation", "true"),
                ),
                source="Configz",
            ),
        ),
        (None, Kubelet()),
        ("text", Kubelet()),
    ],
)
def test_configz_is_read_and_never_guessed(config, kubelet):
    assert parse_configz({"kubeletconfig": config}) == kubelet


def test_an_answer_of_another_kind_says_nothing():
    assert parse_configz({"kind": "Status"}) == Kubelet()


@pytest.fixture
def kubelet(pem, tmp_path):
    """A TLS server that answers /configz as told: kubelet.answer is (status, JSON), kubelet.asked counts."""
    (tmp_path / "both.pem").write_text("\n".join(pem))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "both.pem")

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked += 1
            status, answer = server.answer if self.headers["Authorization"] == "Bearer secret" else (401, {})
            body = json.dumps(answer if self.path == "/configz" else {}).encode()
            body = server.metrics if self.path == "/metrics/cadvisor" else body
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        server.metrics = b""
        server.asked, server.answer = 0, (200, {"kubeletconfig": {"cpuManagerPolicy": "static"}})
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def reader(kubelet, **changes):
    settings = {
        "node_name": "worker",
        "node_ip": "127.0.0.1",
        "kubelet_port": kubelet.server_address[1],
        "kubelet_insecure_tls": True,
        "kubelet_interval_s": 0.0,
        "kubelet_retry_s": 0.0,
    }
    return KubeletReader(AgentSettings(**settings | changes), None, lambda: "secret")


def test_the_kubelets_metrics_are_read_with_the_agents_token(kubelet):
    box = "9a8b" * 16
    container = GovernedContainer(name="server", id=box)
    pod = GovernedPod(namespace="models", name="resnet-1", uid="1", planned={}, containers=(container,))
    line = b'container_cpu_usage_seconds_total{cpu="total",id="/kubepods/pod1/%s"} 3.5 1700000000123\n'
    kubelet.metrics = b"# HELP x\n" * 20_000 + line % box.encode()
    settings = AgentSettings(
        node_name="worker",
        node_ip="127.0.0.1",
        kubelet_port=kubelet.server_address[1],
        kubelet_insecure_tls=True,
        watch=Level.KUBELET,
    )
    found = watching.sampler(settings, lambda: "secret").sample([pod], Sample(0.0, {}))
    assert found.containers[box].counters[:2] == (1700000000.123, 3.5)
    with pytest.raises(ApiError, match="401"):
        watching.sampler(settings, lambda: "other").sample([pod], Sample(0.0, {}))


def test_the_kubelet_of_this_node_is_asked_itself(kubelet):
    assert reader(kubelet).read(ALL).cpu_manager_policy == "static"


def test_the_kubelet_is_asked_now_and_then(kubelet):
    asks = reader(kubelet, kubelet_interval_s=600.0)
    assert [asks.read(ALL).cpu_manager_policy for _ in range(3)] == ["static"] * 3
    assert kubelet.asked == 1


def test_a_kubelet_that_must_not_be_asked_is_not(kubelet):
    assert reader(kubelet, kubelet_config="None").read(ALL) == Kubelet()
    assert reader(kubelet, node_ip="").read(ALL) == Kubelet()
    assert kubelet.asked == 0


@pytest.mark.parametrize("status", [403, 404])
def test_a_refusal_makes_it_unknown_at_once(kubelet, status):
    asks = reader(kubelet)
    assert asks.read(ALL).cpu_manager_policy == "static"
    kubelet.answer = (status, {"message": "no"})
    assert asks.read(ALL) == Kubelet()


# 401: the kubelet can't have the token checked while the API server is away; 429: the API server is busy.
@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_what_it_said_stands_while_it_only_fails_to_answer_a_little(kubelet, status):
    asks = reader(kubelet)
    assert asks.read(ALL).cpu_manager_policy == "static"
    kubelet.answer = (status, {})
    assert [asks.read(ALL).cpu_manager_policy for _ in range(3)] == ["static", "static", "unknown"]
    kubelet.answer = (200, {"kubeletconfig": {"cpuManagerPolicy": "none"}})
    assert asks.read(ALL).cpu_manager_policy == "none"


def test_a_certificate_that_nobody_signed_is_not_trusted_unless_told(kubelet):
    assert reader(kubelet, kubelet_insecure_tls=False).read(ALL) == Kubelet()
    assert kubelet.asked == 0


def test_reserved_cpus_that_the_machine_does_not_have_are_left_out(kubelet):
    kubelet.answer = (200, {"kubeletconfig": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,30-40"}})
    assert cpuset.format_list(reader(kubelet).read(ALL).reserved_cpus) == "0,30-31"


# --- how it logs in ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pem():
    """A self-signed certificate and its key, as PEM texts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode()


@pytest.fixture
def kubeconfig(tmp_path):
    """Writes a kubeconfig of one context and returns its path."""

    def write(user, server="https://127.0.0.1:6443", **cluster):
        path = tmp_path / "kubeconfig"
        config = {
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "u", "user": user}],
        }
        path.write_text(yaml.safe_dump(config))
        return path

    return write


def test_a_kubeconfig_with_a_token(kubeconfig, pem):
    data = base64.b64encode(pem[0].encode()).decode()
    endpoint = from_kubeconfig(kubeconfig({"token": "secret"}, **{"certificate-authority-data": data}))
    assert (endpoint.host, endpoint.port, endpoint.token()) == ("127.0.0.1", 6443, "secret")
    assert endpoint.tls().verify_mode is ssl.CERT_REQUIRED
    assert endpoint.tls().cert_store_stats()["x509"] == 1


def test_a_kubeconfig_with_files_beside_it(kubeconfig, pem, tmp_path):
    for name, text in (("ca.crt", pem[0]), ("me.crt", pem[0]), ("me.key", pem[1])):
        (tmp_path / name).write_text(text)
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    endpoint = from_kubeconfig(kubeconfig(user, **{"certificate-authority": "ca.crt"}))
    assert endpoint.token() == ""
    assert endpoint.tls().cert_store_stats()["x509"] == 1


def test_a_token_file_is_read_again_each_time(kubeconfig, tmp_path):
    token = tmp_path / "token"
    token.write_text("one\n")
    endpoint = from_kubeconfig(kubeconfig({"tokenFile": str(token)}))
    assert endpoint.token() == "one"
    token.write_text("two\n")
    assert endpoint.token() == "two"


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        ({}, {}, "neither a token nor a client certificate"),
        ({"exec": {"command": "aws"}}, {}, "neither a token nor a client certificate"),
        ({"token": "x"}, {"server": "http://127.0.0.1"}, "not an https URL"),
        ({"token": "x"}, {"certificate-authority-data": "%%%"}, "certificate-authority"),
        ({"token": "x"}, {"certificate-authority": "nowhere"}, "certificate-authority"),
        ({"token": "x"}, {"certificate-authority-data": "bm9uc2Vuc2U="}, "a certificate or key can't be used"),
        ({"client-certificate-data": "bm9uc2Vuc2U="}, {}, "a certificate or key can't be used"),
        ({"token": "x"}, {"server": "https://127.0.0.1:99999"}, "not a usable kubeconfig"),
    ],
)
def test_a_kubeconfig_that_can_not_be_used_says_why(kubeconfig, user, cluster, words):
    path = kubeconfig(user, **cluster)
    with pytest.raises(ConfigError, match=words) as caught:
        from_kubeconfig(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"a: [", b"contexts: 3", b"contexts: []", b"[]", b"\xff\xfe"])
def test_a_file_that_is_no_kubeconfig_says_so(tmp_path, content):
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="not a usable kubeconfig"):
        from_kubeconfig(path)


def test_a_missing_context_is_named(kubeconfig):
    with pytest.raises(ConfigError, match="elsewhere"):
        from_kubeconfig(kubeconfig({"token": "x"}), "elsewhere")


def test_the_service_account_of_a_pod(tmp_path, pem):
    (tmp_path / "ca.crt").write_text(pem[0])
    (tmp_path / "token").write_text("first\n")
    endpoint = in_cluster(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"})
    assert (endpoint.host, endpoint.port, endpoint.token()) == ("10.0.0.1", 6443, "first")
    (tmp_path / "token").write_text("rotated\n")
    assert endpoint.token() == "rotated"


@pytest.mark.parametrize("environ", [{}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}])
def test_outside_a_pod_it_says_what_is_missing(tmp_path, environ):
    with pytest.raises(ConfigError, match=r"not in a pod|no service account"):
        in_cluster(tmp_path, environ)


# --- small things ------------------------------------------------------------------------------------------------


def test_pauses_double_up_to_the_most_and_start_over():
    backoff = Backoff(1.0, 8.0)
    for most in (1, 2, 4, 8, 8):
        assert most / 2 <= backoff.pause_s() <= most
    backoff.reset()
    assert backoff.pause_s() <= 1


def test_a_status_object_is_reduced_to_its_message():
    assert client._message(b'{"kind":"Status","message":"no\\nway"}') == "no way"
    assert client._message(b"<html>") == "<html>"
