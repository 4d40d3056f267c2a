"""`raddle selftest` against a real TLS server: it passes for an answer that allows the pod, and names what else it got."""

import http.server
import json
import socket
import ssl
import threading

import pytest
from click.testing import CliRunner

from raddle_operator import certificates
from raddle_operator.cli.selftest import selftest


def allowing(review):
    return 200, json.dumps({"response": {"uid": review["request"]["uid"], "allowed": True}})


class Webhook:
    """A TLS server for 127.0.0.1 that answers each review by `answer(review)`: (status, text)."""

    def __init__(self, folder, answer):
        self.ca_file = folder / "ca.crt"
        self.ca_file.write_bytes(certificates.local_issue(folder, ["127.0.0.1"]))
        outer = self
        self.reviews = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.reviews.append((self.path, review))
                status, text = answer(review)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *arguments):
                pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # a client that does not trust us hangs up

        self.server = Server(("127.0.0.1", 0), Handler)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
        self.server.socket = self.context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def run(webhook, *options):
    return CliRunner().invoke(selftest, ["--url", webhook.url, "--wait-s", "0", *options])


def test_a_webhook_that_allows_the_pod_passes(tmp_path):
    with Webhook(tmp_path, allowing) as webhook:
        done = run(webhook, "--ca-file", str(webhook.ca_file))
    assert done.exit_code == 0, done.output
    assert "allows the pod" in done.output
    assert f"signed by {webhook.ca_file}" in done.output
    ((path, review),) = webhook.reviews
    assert (path, review["request"]["dryRun"]) == ("/mutate/pods", True)


def test_without_an_authority_it_says_that_the_certificate_was_not_verified(tmp_path):
    with Webhook(tmp_path, allowing) as webhook:
        done = run(webhook, "--ca-file", str(tmp_path / "absent"))
    assert (done.exit_code, "not verified" in done.output) == (0, True)


def test_a_certificate_of_another_authority_fails(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "other.crt").write_bytes(certificates.local_issue(other, ["127.0.0.1"]))
    with Webhook(tmp_path, allowing) as webhook:
        done = run(webhook, "--ca-file", str(tmp_path / "other.crt"))
    assert (done.exit_code, "certificate verify failed" in done.output) == (1, True)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((500, "broken"), "got HTTP 500, expected 200: b'broken'"),
        ((200, "no JSON"), "got b'no JSON', expected an AdmissionReview"),
        ((200, json.dumps({"response": {"uid": "other", "allowed": True}})), "got uid and allowed ('other', True)"),
    ],
)
def test_any_other_answer_fails_and_is_named(tmp_path, answer, message):
    with Webhook(tmp_path, lambda _: answer) as webhook:
        done = run(webhook)
    assert (done.exit_code, message in done.output) == (1, True), done.output


def test_a_webhook_that_asks_for_a_certificate_passes_where_that_is_expected(tmp_path):
    with Webhook(tmp_path, allowing) as webhook:
        answered = run(webhook, "--expect-refusal")
        webhook.context.load_verify_locations(webhook.ca_file)
        webhook.context.verify_mode = ssl.CERT_REQUIRED
        refused = run(webhook, "--ca-file", str(webhook.ca_file), "--expect-refusal")
        unexpected = run(webhook, "--ca-file", str(webhook.ca_file))
    assert (answered.exit_code, "expected a refusal" in answered.output) == (1, True)
    assert (refused.exit_code, "requires a client certificate" in refused.output) == (0, True), refused.output
    assert unexpected.exit_code == 1


def test_a_proxy_that_hangs_up_before_tls_is_no_webhook_that_asks_for_a_certificate():
    with socket.create_server(("127.0.0.1", 0)) as proxy:

        def hang_up():
            connection, _ = proxy.accept()
            connection.recv(1)
            connection.close()  # with bytes unread, so by a reset

        thread = threading.Thread(target=hang_up)
        thread.start()
        url = f"https://127.0.0.1:{proxy.getsockname()[1]}"
        done = CliRunner().invoke(selftest, ["--url", url, "--expect-refusal", "--wait-s", "0"])
        thread.join()
    assert (done.exit_code, "hung up during TLS" in done.output) == (1, True), done.output


def test_no_webhook_at_all_fails(tmp_path):
    with Webhook(tmp_path, allowing) as webhook:
        pass
    done = run(webhook)
    assert (done.exit_code, "refused" in done.output) == (1, True), done.output


def test_a_plain_address_is_refused():
    done = CliRunner().invoke(selftest, ["--url", "http://127.0.0.1"])
    assert (done.exit_code, "expected https://HOST[:PORT]" in done.output) == (2, True)
