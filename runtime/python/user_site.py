"""Starts Raddle's shim where PYTHONUSERBASE names the mount, and puts the user's own user site in its place.

raddle.pth executes this text while `site` fills sys.path. Afterwards sys.path, site.USER_BASE and site.USER_SITE are
what they were without PYTHONUSERBASE. The variable stays, so that child processes have the shim too.

Any Python may meet this file, so its syntax is as old as it can be, and only Python 3.8 and later gets the shim.
"""

import os
import site
import sys


def _load(name, path, *folders):  # noqa: ANN001, ANN002, ANN202  # Python 2 may read this
    """Makes a module of a text. An import would call compile(), whose first call in a process costs a millisecond."""
    module = sys.modules[name] = type(sys)(name)
    module.__file__ = path
    module.__spec__ = type(sys.__spec__)(name, None, origin=path, is_package=bool(folders))
    if folders:
        module.__path__ = module.__spec__.submodule_search_locations = list(folders)
    with open(path, "rb") as text:
        exec(text.read(), module.__dict__)  # noqa: S102  # it is what an import does


def _start(folder):  # noqa: ANN001, ANN202
    try:
        _load("raddle", folder + "/__init__.py", folder)
        _load("raddle.shim", folder + "/shim.py")
        sys.modules["raddle"].shim = sys.modules["raddle.shim"]
        sys.modules["raddle.shim"].activate()
    except Exception:
        pass


def _restore(base):  # noqa: ANN001, ANN202
    mounted = site.USER_SITE or ""
    place = sys.path.index(mounted) if mounted in sys.path else len(sys.path)
    # Since Python 3.15 what comes behind user sites is there already (PEP 829).
    behind = sys.path[place:]
    del sys.path[place:]
    site.USER_BASE = os.path.join(os.path.expanduser("~"), ".local")
    site.USER_SITE = site.USER_BASE + mounted[len(base) :]
    if os.path.isdir(site.USER_SITE):
        site.addsitedir(site.USER_SITE)
    sys.path.extend(entry for entry in behind if entry != mounted and entry not in sys.path)


if sys.version_info >= (3, 8):  # noqa: UP036  # any Python may be in the image
    _start(os.environ["PYTHONUSERBASE"] + "/python/raddle")
_restore(os.environ["PYTHONUSERBASE"])
