"""A release of the chart on a cluster: earlier charts, all objects that there are, and what its notes say."""

import json

import yaml

from generate import chart, crds

NAMESPACE = chart.NAMESPACE
PREVIOUS = chart.REPOSITORY / "tests" / "chart" / "previous"
CRDS = sorted(crds.FOLDER.glob("*.yaml"))
CRD_NAMES = [crds.read(path.stem)["metadata"]["name"] for path in CRDS]
# What an uninstall leaves beside CRDs, policies and what running pods mount; the API server made the last three.
LEFT_OVER = frozenset(
    {
        *(f"customresourcedefinition.apiextensions.k8s.io/{name}" for name in CRD_NAMES),
        f"namespace/{NAMESPACE}",
        "apiservice.apiregistration.k8s.io/v1alpha1.raddle.dev",
        f"{NAMESPACE} serviceaccount/default",
        f"{NAMESPACE} configmap/kube-root-ca.crt",
    }
)


def helm(cluster, action, source, *options):
    """Install or upgrade the release from a chart's folder."""
    # CRDs that kubectl applied belong to no release; --take-ownership lets a release have them.
    return cluster.helm(
        action, "raddle", str(source), "--namespace", NAMESPACE, "--create-namespace", "--take-ownership", *options
    )


def earlier(frozen, folder):
    """Make a chart in `folder` that installs what an earlier one rendered, with CRDs that lack the newest column."""
    templates = folder / "templates"
    templates.mkdir(parents=True)
    (folder / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "raddle", "version": "0.0.9"}))
    made = [crds.read(path.stem) for path in CRDS]
    for crd in made:
        del crd["spec"]["versions"][0]["additionalPrinterColumns"][-1]
    text = yaml.safe_dump_all(made) + "\n---\n" + frozen.read_text()
    (templates / "all.yaml").write_text('{{ .Files.Get "all.yaml" }}')
    (folder / "all.yaml").write_text(text)
    return folder


def everything(cluster):
    """The metadata of all objects of all kinds by `[namespace ]kind/name`, but for events."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").stdout.split()
    kept = [kind for kind in kinds if not kind.startswith(("events", "componentstatuses"))]
    listed = cluster.kubectl("get", ",".join(kept), "--all-namespaces", "-o", "json").stdout
    return {_name(item): item["metadata"] for item in json.loads(listed)["items"]}


def _name(item):
    namespace = item["metadata"].get("namespace")
    group = item["apiVersion"].rpartition("/")[0]
    kind = item["kind"].lower() + (f".{group}" if group else "")
    return f"{namespace} {kind}/{item['metadata']['name']}" if namespace else f"{kind}/{item['metadata']['name']}"


def of_raddle(names):
    """Those that have to do with us: by their own name, or their namespace's."""
    return {one for one in names if "raddle" in one}


def notes(cluster):
    """What Helm printed at the release's install or last upgrade."""
    return cluster.helm("get", "notes", "raddle", "--namespace", NAMESPACE).stdout


def removed_by(text, cluster):
    """Run the removal that notes print; return the names of ConfigMaps and CRDs that it removes.

    CRDs by dry run: here their end now and then takes minutes.
    """
    maps, crds = (line.split()[1:] for line in text.splitlines() if line.strip().startswith("kubectl delete"))
    removed = cluster.kubectl(*maps, "-o", "name").stdout.split()
    dry = cluster.kubectl(*crds, "--dry-run=server", "-o", "name").stdout.split()
    return {name.partition("/")[2] for name in removed}, {name.partition("/")[2] for name in dry}
