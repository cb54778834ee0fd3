"""Licences and sources of all dependencies, from the lock file; no network."""

import json
import subprocess
import sys

ALLOWED = {
    "MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause",
    "ISC", "Zlib", "Unicode-3.0", "Unlicense", "0BSD", "CC0-1.0", "BSL-1.0", "MIT-0",
}


def acceptable(expression: str) -> bool:
    """Whether one alternative of an SPDX expression is made of allowed licences only."""
    text = expression.replace("/", " OR ").replace("(", " ").replace(")", " ")
    for alternative in text.split(" OR "):
        if all(part.strip() in ALLOWED for part in alternative.split(" AND ")):
            return True
    return False


def main() -> int:
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    packages = json.loads(subprocess.check_output(command))["packages"]
    bad = []
    for package in packages:
        source = package["source"]
        if source is None:
            continue
        if not source.startswith("registry+"):
            bad.append(f"{package['name']}: comes from {source}, not from the registry")
        if not acceptable(package["license"] or ""):
            bad.append(f"{package['name']}: licence {package['license']!r} is not allowed")
    for line in bad:
        print(line, file=sys.stderr)
    print(f"licences and sources of {len(packages)} packages: {len(bad)} findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
