"""The interpreter is found without executing anything: shared and static builds, virtual environments, containers, deleted files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors._cpython import Unsupported, attach
from collectors._cpython._elf import Elf, NotElf

from .conftest import VERSIONS, Child, needs_root, python_of

WAIT = "import sys; print('ready', flush=True); sys.stdin.read()"
Target = Callable[..., "subprocess.Popen[str]"]


def library_of(python: str) -> str | None:
    """The shared library that holds the interpreter; None when the program itself does."""
    fd = os.open(os.path.realpath(python), os.O_RDONLY)
    try:
        if Elf(fd).section(".PyRuntime"):
            return None
    finally:
        os.close(fd)
    asked = "import sysconfig as s; print(s.get_config_var('LIBDIR'), s.get_config_var('INSTSONAME'), sep='/')"
    return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True, timeout=30).stdout.strip()


def static_python() -> str | None:
    """A CPython that is one program without a library of its own: what Debian and conda ship."""
    for version in VERSIONS:
        for folder in ("/usr/bin", "/usr/local/bin", "/opt/conda/bin"):
            path = "{}/python{}.{}".format(folder, *version)
            if Path(path).exists() and library_of(path) is None:
                return path
    return None


def test_every_version_is_told(child: Child) -> None:
    assert child.process.version == child.version
    assert child.process.verified is (child.version < (3, 14))


def test_a_static_build(fresh: Callable[..., Child]) -> None:
    python = static_python()
    if python is None:
        pytest.skip("no statically linked CPython on this machine")
    child = fresh(python)
    assert child.process.version == child.version
    assert child.read("Plain({'a': [1, 'b']})")["attributes"] == {"a": [1, "b"]}


def test_a_virtual_environment(tmp_path: Path, target: Target) -> None:
    """Its python is a link, and the process knows only where that led."""
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    with attach(target(WAIT, str(tmp_path / "env" / "bin" / "python")).pid) as process:
        assert process.version == sys.version_info[:2]


def test_a_program_that_was_deleted_under_the_process(tmp_path: Path, target: Target) -> None:
    """As an upgrade does it."""
    real = os.path.realpath(sys.executable)
    copy = tmp_path / "an-odd-name"
    shutil.copy(real, copy)
    one = target(WAIT, str(copy), env={**os.environ, "PYTHONHOME": sys.base_prefix})
    copy.unlink()
    with attach(one.pid) as process:
        assert process.version == sys.version_info[:2]


@needs_root
@pytest.mark.parametrize("build", ["shared", "static"])
def test_a_process_in_a_mount_namespace_of_its_own(tmp_path: Path, target: Target, build: str) -> None:
    """Its files are reached through /proc/PID, because their paths lead elsewhere, or nowhere, for us."""
    python = static_python() if build == "static" else python_of((3, 12)) or python_of((3, 11))
    if python is None or shutil.which("unshare") is None:
        pytest.skip(f"no {build} CPython, or no unshare, on this machine")
    library = library_of(python)
    files = [os.path.realpath(python), *([library] if library else [])]
    inside = tmp_path / "image"
    inside.mkdir()
    copies = " && ".join(f"cp {file} {inside}/" for file in files)
    prefix = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True, timeout=30).stdout
    code = WAIT.replace("'", "'\"'\"'")
    script = (
        f"mount -t tmpfs none {inside} && {copies} && "
        f"exec env PYTHONHOME={prefix.strip()} LD_LIBRARY_PATH={inside} LD_PRELOAD={inside / Path(library).name if library else ''} "
        f"{inside}/{Path(files[0]).name} -c '{code}'"
    )
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False, timeout=30)
    if done.returncode:
        pytest.skip("no mount namespaces here")
    one = subprocess.Popen(["unshare", "-m", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert one.stdout and one.stdin
        assert one.stdout.readline() == "ready\n"
        assert not list(inside.iterdir()), "from outside the folder is empty"
        with attach(one.pid) as process:
            assert str(inside) in process.interpreter.path
            assert "sys" in process.modules()
        one.stdin.close()
    finally:
        one.kill()
        one.wait(10)
        if one.stdout:
            one.stdout.close()


ELF_HEAD = b"\x7fELF\x02\x01\x01" + bytes(57)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x7fELF",
        b"#!/bin/sh\n" * 20,
        b"\x7fELF\x01\x01" + bytes(100),
        b"\x7fELF\x02\x02" + bytes(100),
        ELF_HEAD,
        ELF_HEAD[:32] + b"\xff" * 32,
        ELF_HEAD[:32] + (64).to_bytes(8, "little") + (1 << 60).to_bytes(8, "little") + bytes(6) + b"\x38\0\0\0\x40\0\xff\xff\0\0",
    ],
)
def test_a_file_that_is_no_elf_or_a_broken_one(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(raw)
    fd = os.open(path, os.O_RDONLY)
    try:
        with pytest.raises(NotElf):
            elf = Elf(fd)
            assert elf.section(".PyRuntime") is None and elf.symbol("Py_Version") is None
            assert elf.first_address  # nothing is loaded
    finally:
        os.close(fd)


def test_a_real_file_that_was_cut(tmp_path: Path) -> None:
    """Only NotElf may come out."""
    whole = Path(os.path.realpath(sys.executable)).read_bytes()[:200_000]
    path = tmp_path / "file"
    for cut in range(0, len(whole), 9973):
        path.write_bytes(whole[:cut])
        fd = os.open(path, os.O_RDONLY)
        try:
            elf = Elf(fd)
            elf.section(".PyRuntime"), elf.symbol("_PyRuntime"), elf.first_address
        except NotElf:
            pass
        finally:
            os.close(fd)


def test_a_program_that_only_calls_itself_python(tmp_path: Path) -> None:
    fake = tmp_path / "python3.12"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", fake)
    one = subprocess.Popen([fake, "1000"])
    try:
        while (
            str(fake) not in Path(f"/proc/{one.pid}/maps").read_text()
        ):  # Popen returns when the old program is gone, not when the new one is there
            assert one.poll() is None
        with pytest.raises(Unsupported, match="no runtime state of CPython"):
            attach(one.pid)
    finally:
        one.kill()
        one.wait()
