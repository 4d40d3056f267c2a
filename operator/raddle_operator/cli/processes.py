"""The commands that run in the cluster: each reads its options into one frozen settings value and runs.

Every option can be a variable RADDLE_<OPTION>, so that the chart can set it either way. Processes are imported when
called: the agent must stay small.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
UNLABELLED: Final = click.Choice(["disabled", "labelled", "enabled"])


def option(flag: str, setting: str | None = None, **more: Any) -> Callable[[Command], Command]:
    """An option that is also the variable RADDLE_<FLAG>, its default shown; `setting` is its field's name."""
    variable = "RADDLE_" + flag.split("/", maxsplit=1)[0].lstrip("-").upper().replace("-", "_")
    more.setdefault("envvar", variable)
    names = (flag, setting) if setting else (flag,)
    return click.option(*names, show_envvar=True, show_default="default" in more, **more)


def names(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """The names of a comma-separated list; empty text holds none."""
    del ctx, param
    return tuple(name for part in value.split(",") if (name := part.strip()))


def address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """An address (no name: a shim asks nobody for one) and its port; "", with a warning, for what is neither.

    Pods must be admitted all the same: the kubelet leaves $(X) as it is where it has not yet seen the Service.
    """
    del ctx, param
    host, _, port = value.rpartition(":")
    try:
        result = ipaddress.ip_address(host.strip("[]"))
        usable = port.isdecimal() and 0 < int(port) < 1 << 16
    except ValueError:
        usable = False
    if usable:
        return f"[{result}]:{port}" if result.version == 6 else f"{result}:{port}"
    if value:
        click.echo(f"--agent-address {value!r} is not an address with a port, so shims can't report", err=True)
    return ""


def common(command: Command) -> Command:
    """Adds the options of all processes."""
    for add in (
        option(
            "--kubeconfig",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Path to the kubeconfig file. Default: the pod's service account.",
        ),
        option("--context", help="Kubeconfig context. Default: the current context."),
        option(
            "--log-level",
            default="info",
            type=click.Choice(["debug", "info", "warning", "error"]),
            help="Minimum severity of messages logged to standard error.",
        ),
    ):
        command = add(command)
    return command


NAMESPACE: Final = option("--namespace", default="raddle-system", help="Namespace in which Raddle runs.")


def start_logging(level: str) -> None:
    """Logs `time level logger message` lines on standard error."""
    logging.basicConfig(level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")


@click.command()
@common
@NAMESPACE
@option("--host", default="0.0.0.0", help="Address of the probes and metrics.")  # noqa: S104 (inside a pod)
@option("--port", default=8080, help="TCP port of /livez, /readyz and /metrics.")
@option("--identity", default=lambda: f"{socket.gethostname()}-{os.getpid()}", help="Holder of the Lease.")
@option("--unlabelled", default="disabled", type=UNLABELLED, help="Injection mode of namespaces without the label.")
@option("--keep-shim/--no-keep-shim", default=True, help="Keep the shim's ConfigMap in opted-in namespaces.")
@option("--door/--no-door", default=True, help="Whether pods load the shim through /etc/ld.so.preload.")
@option(
    "--shim-namespaces", default="", callback=names, help="Namespaces in which ConfigMaps may be written. Default: all."
)
@option(
    "--excluded-namespaces",
    default="kube-system",
    callback=names,
    help="Namespaces that are never opted in, in addition to Raddle's own.",
)
@option("--tuning/--no-tuning", default=False, help="Run InferenceTunings as Jobs in their namespaces.")
@option("--tuner-image", default="", help="Image of the container that measures, for --tuning.")
@option("--issue-certificates/--no-issue-certificates", default=True, help="Issue the webhook's certificate.")
@option("--resync-s", default=600.0, help="Seconds between full re-lists.")
@option("--status-interval-s", default=3.0, help="Minimum seconds between status updates of a policy.")
def controller(log_level: str, **options: Any) -> None:
    """Run the controller: watch policies, topologies and pods; write status, events and metrics."""
    # Not at the top: the agent would carry it too.
    from raddle_operator.controller.process import run
    from raddle_operator.controller.settings import ControllerSettings

    if options["tuning"] and not options["tuner_image"]:
        raise click.UsageError("--tuning needs --tuner-image, the image of the container that measures")
    start_logging(log_level)
    sys.exit(run(ControllerSettings(**options)))


@click.command()
@common
@NAMESPACE
@option(
    "--tls-dir",
    default=Path("/tls"),
    type=click.Path(path_type=Path),
    help="Directory with tls.crt and tls.key. Changes are picked up without a restart.",
)
@option(
    "--client-ca-file",
    type=click.Path(path_type=Path),
    help="CA bundle (PEM) that verifies client certificates. If absent, none are required.",
)
@option("--host", default="", help="Address to listen on. Default: all.")
@option("--port", default=10250, help="TCP port for admission requests.")
@option("--metrics-port", "health_port", default=8080, help="TCP port of the probes and metrics.")
@option(
    "--unlabelled",
    "default_inject",
    default="disabled",
    type=UNLABELLED,
    help="Injection mode of namespaces without the label.",
)
@option("--door/--no-door", default=True, help="Whether pods may load the shim through /etc/ld.so.preload.")
@option(
    "--shim-namespaces", default="", callback=names, help="Namespaces in which ConfigMaps may be read. Default: all."
)
@option(
    "--agent-address",
    default="",
    callback=address,
    help="Address and port to which shims send reports. If absent, they send none.",
)
@option("--tuning", is_flag=True, help="Use the results of InferenceTunings that policies reference.")
@option("--drain-delay", "drain_delay_s", default=5.0, help="Seconds between SIGTERM and closing the port.")
@option(
    "--lookup-timeout",
    "lookup_timeout_s",
    default=0.3,
    help="Seconds to wait for the API server to return a pod missing from the watch cache; then safe values are kept.",
)
@option("--decision-logs-per-s", default=20.0, help="Maximum decisions logged per second; 0 disables logging them.")
def webhook(log_level: str, **options: Any) -> None:
    """Run the admission webhook: answer pods and bindings from memory."""
    from raddle_operator.webhook.process import ConfigError, run
    from raddle_operator.webhook.settings import WebhookSettings

    start_logging(log_level)
    try:
        run(WebhookSettings(**options))
    except (ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from None


@click.command()
@common
@option("--node-name", required=True, envvar=["RADDLE_NODE_NAME", "NODE_NAME"], help="Name of this node.")
@option("--node-ip", default="", envvar=["RADDLE_NODE_IP", "NODE_IP"], help="Address of the node's kubelet.")
@option(
    "--root",
    default=Path("/"),
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Directory that contains the node's sys/ and proc/.",
)
@option(
    "--kubelet-config",
    default="Configz",
    type=click.Choice(["Configz", "Proxy", "None"]),
    help="How to read the kubelet's CPU manager settings.",
)
@option("--kubelet-port", default=10250, type=click.IntRange(1, 65535), help="The kubelet's port.")
@option("--kubelet-insecure-tls", is_flag=True, help="Accept any certificate of this node's own kubelet.")
@option("--reread-s", default=60.0, type=click.FloatRange(0.1, 86400.0), help="Seconds between reads of /sys.")
@option(
    "--kubelet-interval-s",
    type=click.FloatRange(0.1, 86400.0),
    help="Seconds between kubelet requests. Default: 60, or 600 with --kubelet-config Proxy.",
)
@option(
    "--watch",
    default="None",
    type=click.Choice(["None", "Kubelet", "Cgroups", "Processes"]),
    help="What to observe of the containers on this node that Raddle manages.",
)
@option("--cgroups", default="/sys/fs/cgroup", help="Directory at which the node's /sys/fs/cgroup is mounted.")
@option(
    "--watch-interval",
    "watch_interval_s",
    default=15.0,
    type=click.FloatRange(1.0, 3600.0),
    help="Seconds between observations. Longer if one takes more than 1% of the interval.",
)
@option("--watch-port", default=8082, help="TCP port of /v1/report, /metrics and /livez, with --watch.")
@option(
    "--datagrams-port",
    type=click.IntRange(0, 65535),
    help="UDP port that receives the shims' reports, with --watch. If absent, none are received.",
)
def agent(log_level: str, **options: Any) -> None:
    """Run the node agent: publish this node's NodeCPUTopology; with --watch, also observe its containers."""
    from raddle_operator.agent.client import ConfigError
    from raddle_operator.agent.process import run
    from raddle_operator.agent.settings import AgentSettings
    from raddle_operator.objects.nodereport import Level

    start_logging(log_level)
    options["watch"] = None if options["watch"] == "None" else Level(options["watch"])
    try:
        sys.exit(run(AgentSettings(**options)))
    except ConfigError as error:
        raise click.ClickException(str(error)) from None
