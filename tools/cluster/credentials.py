"""The key material of one cluster on disk, and kubeconfigs that carry it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster import flags, pki

SYSTEM_USERS = {
    "controller-manager": "system:kube-controller-manager",
    "scheduler": "system:kube-scheduler",
}
ADMIN = ("kubernetes-admin", ("system:masters",))


class Credentials:
    """The authority of a cluster and what it has signed; everything lies in `pki` and `users` of the directory."""

    def __init__(self, directory: Path, cluster_name: str) -> None:
        """Makes all keys and certificates that the components need (a few ms each, the RSA key up to 100 ms)."""
        self._users = directory / "users"
        self._users.mkdir()
        self._cluster_name = cluster_name
        folder = directory / "pki"
        folder.mkdir()
        self._authority = pki.Authority(folder)
        self.ca_file = self._authority.certificate_file
        self.admin_certificate = folder / "admin.crt"
        self.admin_key = folder / "admin.key"
        self._admin = self._authority.client(*ADMIN)
        _write_pair(self.admin_certificate, self.admin_key, *self._admin)
        _write_pair(folder / "server.crt", folder / "server.key", *self._authority.server(flags.SERVER_NAMES))
        pki.write_service_account_keys(folder / "service-account.key", folder / "service-account.pub")
        self._system = {name: self._authority.client(user) for name, user in SYSTEM_USERS.items()}

    def write_kubeconfigs(self, server: str, admin_kubeconfig: Path) -> None:
        """Writes the administrator's kubeconfig and the components' own for an API server at this URL."""
        self._write(admin_kubeconfig, server, "admin", *self._admin)
        for name, pair in self._system.items():
            self._write(self._users / f"{name}.kubeconfig", server, name, *pair)

    def user(self, server: str, name: str, groups: Sequence[str]) -> Path:
        """The kubeconfig of a user with these groups, signed at the first call."""
        digest = hashlib.sha256("\0".join([name, *groups]).encode()).hexdigest()[:8]
        path = self._users / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}-{digest}.kubeconfig"
        if not path.exists():
            self._write(path, server, name, *self._authority.client(name, groups))
        return path

    def _write(self, path: Path, server: str, user: str, certificate: bytes, key: bytes) -> None:
        content = _kubeconfig(self._cluster_name, server, self._authority.pem, user, certificate, key)
        pki.write_private(path, yaml.safe_dump(content, sort_keys=False).encode())


def _write_pair(certificate_file: Path, key_file: Path, certificate: bytes, key: bytes) -> None:
    certificate_file.write_bytes(certificate)
    pki.write_private(key_file, key)


def _kubeconfig(cluster: str, server: str, ca: bytes, user: str, certificate: bytes, key: bytes) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": _base64(ca)}}],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)},
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
