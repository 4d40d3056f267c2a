"""A release of the chart on a cluster: an earlier chart, all objects that there are, and what its notes say."""

import json
import shutil

import yaml

from generate import chart, crds

NAMESPACE = chart.NAMESPACE
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


def earlier(folder):
    """Copy the chart to `folder` as an earlier version may have been: no network policies, `earlier_crds`."""
    shutil.copytree(chart.CHART, folder)
    (folder / "templates" / "network-policies.yaml").unlink()
    described = yaml.safe_load((folder / "Chart.yaml").read_text())
    (folder / "Chart.yaml").write_text(yaml.safe_dump(described | {"version": "0.0.9", "appVersion": "0.0.9"}))
    for path, crd in earlier_crds().items():
        (folder / "files" / "crds" / path.name).write_text(yaml.safe_dump(crd))
    return folder


def earlier_crds():
    """The CRDs by file, without what a version may add: the last column, a field of policies, a rule that refuses."""
    made = {path: crds.read(path.stem) for path in CRDS}
    for path, crd in made.items():
        (version,) = crd["spec"]["versions"]
        del version["additionalPrinterColumns"][-1]
        if path.stem.endswith("inferencethreadings"):
            spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            del spec["onnxruntime"]["properties"]["arenaShrinkage"]
            rules = spec["threads"]["x-kubernetes-validations"]
            rules[:] = [rule for rule in rules if rule["fieldPath"] != ".interOp"]
    return made


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
