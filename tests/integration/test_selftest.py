"""`raddle selftest`, which `helm test` runs in a pod, against the webhook that the API server calls."""

import re
import subprocess
import sys

URL = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/raddle"


def test_it_passes_where_the_webhook_answers_with_a_certificate_of_the_authority(cluster, raddle):
    called = cluster.client.get(URL)["webhooks"][0]["clientConfig"]["url"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "raddle_operator", "selftest", "--wait-s", "20"),
            *("--url", re.sub(r"/mutate.*", "", called)),
            *("--ca-file", str(cluster.directory / "raddle-tls" / "ca.crt")),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "allows the pod" in done.stdout
    assert "is signed by" in done.stdout
