"""Which allocators an image has, by the files that the native shim looks for."""

import os
import re

import pytest

from native import build
from raddle_operator.local import allocators

PRELOAD = (build.SOURCES / "preload.c").read_text()


def test_files_and_folders_are_those_of_the_native_shim():
    rows = re.findall(r'\[RD_ALLOCATOR_(\w+)\] = \{"lib\w+",\s*\{([^}]*)\}', PRELOAD)
    assert {name.capitalize(): tuple(re.findall(r'"([^"]+)"', files)) for name, files in rows} == allocators.FILES
    for architecture, place in (("x86_64", 0), ("aarch64", 1)):
        own = re.findall(r"#define LIBRARIES (.*)", PRELOAD)[place]
        every = re.search(r"folders\[\] = \{LIBRARIES, (.*), NULL\}", PRELOAD)[1]
        folders = re.findall(r'"([^"]+)"', own + every)
        assert folders == [folder.format(architecture) for folder in allocators.FOLDERS]


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ([], ()),
        (["/usr/lib/libjemalloc.so.2"], ("Jemalloc",)),
        (["/usr/local/lib/libmimalloc.so", "/lib64/libtcmalloc.so.4"], ("Mimalloc", "Tcmalloc")),
        (["/usr/lib/libjemalloc.so.2.debug"], ()),
        (allocators.paths(), ("Mimalloc", "Jemalloc", "Tcmalloc")),
    ],
)
def test_an_allocator_is_there_where_one_of_its_files_is(files, names):
    assert allocators.named(files) == names


def test_this_machine_has_those_whose_files_it_has():
    assert allocators.here() == allocators.named(list(filter(os.path.exists, allocators.paths())))
