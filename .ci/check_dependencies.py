"""Check what users install beside the package: licences and, where a network is there, vulnerabilities.

    python .ci/check_dependencies.py        # part of `make check`

A user gets the dependencies and the extras, but not `dev` and the other tools. pip-licenses reads the
licences of what is installed here; pyproject.toml says which are allowed. pip-audit asks for known
vulnerabilities of the same packages; without an answer within a minute nothing is said.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
TOOLS = {"dev", "docs", "release", "fuzz"}
OF_NVIDIA = ("nvidia-", "cuda-")  # parts of torch's build for CUDA, under NVIDIA's own licence
SECONDS = 60


def find_packages() -> dict[str, str]:
    """The installed versions of everything that the package and its extras need, by name."""
    extras = PROJECT["project"]["optional-dependencies"]
    lines = [*PROJECT["project"]["dependencies"]]
    lines += [line for name, own in extras.items() if name not in TOOLS for line in own]
    found: dict[str, str] = {}
    waiting, seen = [Requirement(line) for line in lines], set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            installed = distribution(requirement.name)
        except PackageNotFoundError:
            continue  # of another system, or an extra that is not installed
        found[canonicalize_name(requirement.name)] = installed.version
        for line in installed.requires or []:
            needed = Requirement(line)
            environments = [{"extra": extra} for extra in ("", *requirement.extras)]
            if needed.marker is None or any(map(needed.marker.evaluate, environments)):
                waiting.append(needed)
    return found


def check_licences(packages: dict[str, str]) -> int:
    """Let pip-licenses refuse a licence that pyproject.toml does not allow; its exit code."""
    names = [name for name in packages if not name.startswith(OF_NVIDIA)]
    command = [sys.executable, "-m", "piplicenses", "--packages", *names]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr.strip() or done.stdout.strip())
    return done.returncode


def check_vulnerabilities(packages: dict[str, str]) -> int:
    """Print the known vulnerabilities; returns their number, which is 0 without a network."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.writelines(f"{name}=={version.partition('+')[0]}\n" for name, version in packages.items())
        pinned.flush()
        options = ["--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
        command = [sys.executable, "-m", "pip_audit", "-r", pinned.name, *options, "--timeout", "5"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
            audited = json.loads(done.stdout)["dependencies"]
        except (subprocess.TimeoutExpired, ValueError, KeyError):
            print("Vulnerabilities were not checked: the audit needs a network.")
            return 0
    known = [(each, found) for each in audited for found in each.get("vulns", [])]
    for package, found in known:
        fixed = ", ".join(found["fix_versions"]) or "none yet"
        print(f"{package['name']} {package['version']}: {found['id']}, fixed in {fixed}")
    return len(known)


def main() -> None:
    """Check both; the exit code is 1 if anything was found."""
    packages = find_packages()
    sys.exit(bool(check_licences(packages)) or bool(check_vulnerabilities(packages)))


if __name__ == "__main__":
    main()
