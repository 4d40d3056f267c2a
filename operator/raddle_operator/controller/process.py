"""The controller process: a kopf operator whose handlers start, feed and stop one :class:`Controller`."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Final

import kopf

from raddle_operator.controller import handlers
from raddle_operator.controller.controller import Controller
from raddle_operator.controller.reconcile import HistoryRewoundError
from raddle_operator.controller.settings import ControllerSettings
from raddle_operator.controller.state import watched
from raddle_operator.kube import Kube, KubeError
from raddle_operator.kube.leader import LeadershipLostError

log = logging.getLogger(__name__)

COLLECTED_AFTER: Final = (10_000, 10, 10)
"""Parsing lists makes objects by the hundred thousand and no cycles; by default a third of a start is collection."""


def run(settings: ControllerSettings) -> int:
    """Runs the controller until SIGTERM or SIGINT; returns the exit status."""
    gc.set_threshold(*COLLECTED_AFTER)
    try:
        asyncio.run(serve(settings))
    except (LeadershipLostError, HistoryRewoundError, KubeError) as error:
        log.error("%s; exiting", error)  # noqa: TRY400 (no bug, no traceback)
        return 1
    return 0


async def serve(settings: ControllerSettings) -> None:
    """Runs the controller until SIGTERM or SIGINT; then its Lease is released. The event loop must be its own.

    Raises what ends the process before: ConfigError where there are no credentials, LeadershipLostError,
    HistoryRewoundError, or what failed.
    """
    async with await Kube.from_settings(settings.kubeconfig, settings.context) as kube:
        controller = Controller(kube, settings)
        await _operate(controller, settings)
    if controller.error is not None:
        raise controller.error


async def _operate(controller: Controller, settings: ControllerSettings) -> None:
    """Runs kopf until SIGTERM, SIGINT, or the controller has ended. Raises what ended it otherwise."""
    await kopf.operator(
        registry=handlers.registry(watched(settings)),
        memo=controller,  # which every handler gets
        # It is for peering only, but kopf would look for the user's name, which a container's may lack.
        identity="raddle",
        standalone=True,  # no peering: a foreign object named "default" could pause us
        clusterwide=True,
        stop_flag=controller.ended,
    )
