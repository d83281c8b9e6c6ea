"""Archives of npm packages, fetched by npm itself from the registry that it is set up for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from dml.core.download import Checksum, ChecksumError
from dml.core.errors import UserError

REASON = re.compile(r"^npm (?:error|ERR!) (?!code |syscall |errno )(.+)", re.MULTILINE)


def pack(package: str, target: Path, checksum: Checksum) -> Path:
    """Fetches a package to `target`, unless the right file is there.

    Args:
        package: name and version, as in `@scope/name@1.2.3`.
        target: the archive; its folder is made.
        checksum: of the archive.

    Returns:
        `target`.

    Raises:
        UserError: npm is not installed, or cannot fetch the package.
        ChecksumError: the archive is not the published one, and was deleted.
    """
    if target.is_file():
        with suppress(ChecksumError):
            checksum.check(target)
            return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".npm-", dir=target.parent) as folder:
        archive = _run(package, Path(folder))
        checksum.check(archive)
        return archive.replace(target)


def _run(package: str, folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(
            "the drawings are npm packages, and npm is not installed: install it, or where it is "
            "type npm pack <package> for each, and give the folder with --archive: " + package
        )
    folder = folder.resolve()  # npm takes paths from the folder that it is started in
    command = [npm, "pack", package, "--ignore-scripts", "--pack-destination", str(folder)]
    # In a folder of its own: npm reads the settings of a project that it is started in.
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "npm_config_update_notifier": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        raise UserError(f"npm pack {package} failed: {_explain(done.stderr)}")
    return archives[0]


def _explain(output: str) -> str:
    """Returns the first sentence of npm's error; its codes come before it."""
    found = REASON.search(output)
    return found[1].strip() if found else "it gives no reason"
