"""Starts Raddle's shim where PYTHONUSERBASE names the mount, and puts the user's own user site in its place.

raddle.pth executes this text while `site` fills sys.path. Afterwards sys.path, site.USER_BASE and site.USER_SITE are
what they were without PYTHONUSERBASE. The variable stays, so that child processes have the shim too.
"""

import os
import site
import sys


def _load(name: str, path: str, *folders: str) -> None:
    """Makes a module of a text. An import would call compile(), whose first call in a process costs a millisecond."""
    module = sys.modules[name] = type(sys)(name)
    module.__file__ = path
    module.__spec__ = type(sys.__spec__)(name, None, origin=path, is_package=bool(folders))
    if folders:
        module.__path__ = module.__spec__.submodule_search_locations = list(folders)
    with open(path, "rb") as text:
        exec(text.read(), module.__dict__)  # noqa: S102  # it is what an import does


def _start(folder: str) -> None:
    try:
        _load("raddle", folder + "/__init__.py", folder)
        _load("raddle.shim", folder + "/shim.py")
        sys.modules["raddle"].shim = sys.modules["raddle.shim"]
        sys.modules["raddle.shim"].activate()
    except Exception:
        pass


def _restore(base: str) -> None:
    mounted = site.USER_SITE or ""
    sys.path[:] = [entry for entry in sys.path if entry != mounted]
    site.USER_BASE = os.path.join(os.path.expanduser("~"), ".local")
    site.USER_SITE = site.USER_BASE + mounted[len(base) :]
    if os.path.isdir(site.USER_SITE):
        site.addsitedir(site.USER_SITE)


_start(os.environ["PYTHONUSERBASE"] + "/python/raddle")
_restore(os.environ["PYTHONUSERBASE"])
