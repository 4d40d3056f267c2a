"""The webhook's own certificates: at every moment the API server trusts what the webhook serves."""

import base64
import copy
import itertools
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from raddle_operator import certificates as c
from raddle_operator.kube import Conflict, NotFound

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
DAY = timedelta(days=1)
SETTINGS = c.CertificateSettings(extra_names=("10.0.0.1",))


class Cluster:
    """The two objects, as the API server keeps them; only what `ensure` asks for."""

    def __init__(self, webhooks=3):
        self.now = NOW
        self.secret = None
        self.configuration = {
            "webhooks": [{"name": f"w{n}.raddle.dev", "clientConfig": {"url": "https://x"}} for n in range(webhooks)]
        }
        self.writes = []
        self.refuse_next = False
        self._versions = itertools.count(1)

    async def get(self, resource, name, namespace=""):
        found = self.secret if resource.plural == "secrets" else self.configuration
        if found is None:
            raise NotFound(404, "NotFound", name)
        return copy.deepcopy(found)

    async def apply(self, resource, body, *, field_manager):
        if self.refuse_next:
            self.refuse_next = False
            raise Conflict(409, "Conflict", "")
        expected = body["metadata"].get("resourceVersion")
        if expected is not None:
            assert expected == self.secret["metadata"]["resourceVersion"]
        metadata = {**body["metadata"], "resourceVersion": str(next(self._versions))}
        self.secret = {**copy.deepcopy(body), "metadata": metadata}
        self.writes.append("secret")
        return self.secret

    async def patch(self, resource, name, patch, *, kind, field_manager):
        assert kind == "json"
        for operation in patch:
            _, _, index, *path = operation["path"].split("/")
            webhook = self.configuration["webhooks"][int(index)]
            if operation["op"] == "test":
                assert path == ["name"]
                assert webhook["name"] == operation["value"]
            else:
                assert path == ["clientConfig", "caBundle"], "nothing else of the configuration is ours"
                webhook["clientConfig"]["caBundle"] = operation["value"]
        self.writes.append("configuration")

    async def ensure(self):
        return await c.ensure(self, SETTINGS, lambda: self.now)

    async def settle(self):
        """Pass after pass until nothing is written; returns how many passes wrote."""
        for passes in range(10):
            before = len(self.writes)
            await self.ensure()
            self.check_trust()
            if len(self.writes) == before:
                return passes
        pytest.fail(f"never settles: {self.writes}")

    @property
    def leaf(self):
        return x509.load_pem_x509_certificate(base64.b64decode(self.secret["data"]["tls.crt"]))

    @property
    def authorities(self):
        return x509.load_pem_x509_certificates(base64.b64decode(self.secret["data"]["ca.crt"]))

    def bundle(self, index=0):
        data = self.configuration["webhooks"][index]["clientConfig"].get("caBundle", "")
        return x509.load_pem_x509_certificates(base64.b64decode(data)) if data else []

    def check_trust(self):
        """The API server accepts the leaf that is served, by every entry of the configuration."""
        for index in range(len((self.configuration or {"webhooks": []})["webhooks"])):
            trusted = verification.Store(self.bundle(index))
            builder = verification.PolicyBuilder().store(trusted).time(self.now)
            builder.build_server_verifier(x509.DNSName("raddle-webhook.raddle-system.svc")).verify(self.leaf, [])


@pytest.fixture(name="cluster")
async def settled():
    found = Cluster()
    await found.settle()
    return found


async def test_from_nothing_one_pass_makes_all_and_the_next_finds_nothing_to_do():
    cluster = Cluster()
    assert await cluster.ensure() == c.SETTLE.total_seconds()
    cluster.check_trust()
    assert cluster.writes == ["secret", "configuration"]
    assert await cluster.ensure() == c.CHECK_AGAIN.total_seconds()
    assert cluster.writes == ["secret", "configuration"]
    assert cluster.secret["type"] == "kubernetes.io/tls"
    assert cluster.secret["data"].keys() == {"tls.crt", "tls.key", "ca.crt", "ca.key"}


async def test_the_leaf_is_for_the_services_names_and_further_ones_and_for_serving_only(cluster):
    names = cluster.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    ends = (".svc", "", ".svc.cluster.local")
    assert names.get_values_for_type(x509.DNSName) == [f"raddle-webhook.raddle-system{end}" for end in ends]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1"]
    assert isinstance(cluster.leaf.public_key().curve, ec.SECP256R1)
    usage = cluster.leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]


async def test_a_leaf_is_renewed_a_month_before_its_end_by_the_same_authority(cluster):
    leaf, authorities = cluster.leaf, cluster.authorities
    cluster.now += c.LEAF_LIFE - c.LEAF_RENEWED_BEFORE - DAY
    assert await cluster.settle() == 0
    cluster.now += DAY
    await cluster.settle()
    assert cluster.leaf.serial_number != leaf.serial_number
    assert cluster.authorities == authorities


async def test_a_leaf_that_a_clock_months_ahead_has_made_is_replaced_once_the_clock_is_right(cluster):
    cluster.now += 70 * DAY
    await cluster.ensure()
    made_ahead, authorities = cluster.leaf, cluster.authorities
    cluster.now -= 70 * DAY
    assert made_ahead.not_valid_before_utc > cluster.now
    await cluster.ensure()
    cluster.check_trust()
    assert cluster.authorities == authorities
    assert await cluster.settle() == 0


async def test_an_authority_that_a_clock_years_ahead_has_made_is_replaced_once_the_clock_is_right():
    cluster = Cluster()
    cluster.now += c.AUTHORITY_LIFE
    await cluster.settle()
    (made_ahead,) = cluster.authorities
    cluster.now -= c.AUTHORITY_LIFE
    await cluster.ensure()
    cluster.check_trust()
    assert cluster.authorities[0] != made_ahead
    assert await cluster.settle() == 0


async def test_a_new_authority_is_in_every_bundle_beside_the_old_one_before_it_signs(cluster):
    (old,) = cluster.authorities
    cluster.now += c.AUTHORITY_LIFE - c.AUTHORITY_RENEWED_BEFORE
    # A controller that slept for years: the leaf, renewed so far, is as it should be.
    leaf_pem, key_pem = c.new_leaf(signer(cluster), SETTINGS.names, cluster.now)
    cluster.secret["data"] |= {"tls.crt": encoded(leaf_pem), "tls.key": encoded(key_pem)}
    leaf = cluster.leaf
    await cluster.ensure()
    assert cluster.leaf == leaf
    new, kept = cluster.authorities
    assert kept == old
    assert all(set(cluster.bundle(index)) == {old, new} for index in range(3))
    cluster.check_trust()
    await cluster.ensure()
    assert cluster.leaf != leaf
    cluster.leaf.verify_directly_issued_by(new)
    cluster.check_trust()
    cluster.now += c.AUTHORITY_RENEWED_BEFORE + DAY
    await cluster.settle()
    assert cluster.bundle() == [new], "an authority that has ended leaves the bundle"


async def test_a_crash_between_the_two_writes_is_mended_by_the_next_pass(cluster):
    cluster.now += c.AUTHORITY_LIFE - c.AUTHORITY_RENEWED_BEFORE
    before = copy.deepcopy(cluster.configuration)
    await cluster.ensure()
    cluster.configuration = before  # as if the second write had not come
    leaf = cluster.leaf
    await cluster.ensure()
    assert cluster.leaf == leaf, "the pass that publishes does not switch"
    await cluster.settle()


async def test_an_emptied_bundle_and_a_new_entry_are_filled_again(cluster):
    del cluster.configuration["webhooks"][1]["clientConfig"]["caBundle"]
    cluster.configuration["webhooks"].append({"name": "new.raddle.dev", "clientConfig": {"caBundle": "Z2FyYmFnZQ=="}})
    cluster.writes.clear()
    await cluster.ensure()
    cluster.check_trust()
    assert cluster.writes == ["configuration"]


async def test_a_missing_configuration_is_waited_for_with_the_secret_made():
    cluster = Cluster()
    configuration, cluster.configuration = cluster.configuration, None
    assert await cluster.ensure() == c.SETTLE.total_seconds()
    assert cluster.writes == ["secret"]
    cluster.configuration = configuration
    await cluster.settle()


async def test_another_writer_is_given_way():
    cluster = Cluster()
    cluster.refuse_next = True
    assert await cluster.ensure() == c.SETTLE.total_seconds()
    assert cluster.writes == []
    await cluster.settle()


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt", "ca.key"])
@pytest.mark.parametrize("value", ["", "Z2FyYmFnZQ==", "not base64!", None])
async def test_a_damaged_secret_is_mended(cluster, key, value):
    cluster.secret["data"][key] = value
    for _ in range(6):
        await cluster.ensure()
    cluster.check_trust()
    assert await cluster.settle() == 0


async def test_a_deleted_secret_revokes_what_was(cluster):
    (old,) = cluster.authorities
    cluster.secret = None
    await cluster.settle()
    assert old not in cluster.bundle()


async def test_a_new_name_gets_a_new_leaf(cluster):
    leaf = cluster.leaf
    await c.ensure(cluster, c.CertificateSettings(extra_names=("other.test",)), lambda: cluster.now)
    assert cluster.leaf != leaf


@given(st.lists(st.integers(1, 400), min_size=1, max_size=30))
async def test_over_any_years_what_serves_is_trusted_whenever_the_controller_comes(days):
    cluster = Cluster(webhooks=1)
    await cluster.settle()
    for step in days:
        cluster.now += step * DAY
        await cluster.settle()
        assert cluster.leaf.not_valid_after_utc - cluster.now > c.LEAF_RENEWED_BEFORE
        assert cluster.leaf.not_valid_after_utc <= cluster.authorities[0].not_valid_after_utc
        assert len(cluster.bundle()) <= c.MAX_TRUSTED


def test_local_issue_writes_files_that_a_server_can_load(tmp_path):
    pem = c.local_issue(tmp_path / "tls", ["127.0.0.1", "localhost"])
    assert (tmp_path / "tls" / "ca.crt").read_bytes() == pem
    assert (tmp_path / "tls" / "tls.key").stat().st_mode & 0o777 == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "tls" / "tls.crt", tmp_path / "tls" / "tls.key")


def test_an_authority_without_its_key_signs_nothing():
    authority = c.new_authority(NOW)
    with pytest.raises(ValueError, match="no private key"):
        c.new_leaf(c.Authority(certificate=authority.certificate, key=None), ["x"], NOW)


def signer(cluster):
    return c.read_state(cluster.secret, cluster.configuration).signer


def encoded(data):
    return base64.b64encode(data).decode()
