"""Runs every block of README.md in the checkout, in order, in one shell.

usage: python3 .ci/readme.py PATH_OF_VARVELOG

Shell blocks run as they stand, with two exceptions: the test command, which CI runs as its first
step, is checked to be that step; the demo is told to end by itself. Python blocks must be the
programs in examples/python, which CI runs against a broker.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEST_COMMAND = "cargo test --workspace --locked"
DEMO_COMMAND = "cargo run --release --locked -- demo"


def blocks() -> list[tuple[str, str]]:
    text = (ROOT / "README.md").read_text()
    return re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def check_python(block: str) -> None:
    programs = [path.read_text() for path in (ROOT / "examples/python").glob("*.py")]
    assert block in programs, f"a Python block is none of examples/python:\n{block}"
    lines = [line for line in block.splitlines() if line.strip()]
    limit = 12 if "Consume" in block else 6
    assert len(lines) <= limit, f"{len(lines)} lines, at most {limit}:\n{block}"


def shell_script(found: list[tuple[str, str]]) -> str:
    lines = ["set -eu -o pipefail", "set -m"]
    for language, block in found:
        if language == "python":
            check_python(block)
        if language != "sh":
            continue
        for line in block.splitlines():
            if line == TEST_COMMAND:
                assert TEST_COMMAND in (ROOT / ".ci/run").read_text().splitlines()
                continue
            if line == DEMO_COMMAND:
                line += " --exit"
            lines.append(f"printf '$ %s\\n' {shlex.quote(line)} >&2")
            lines.append(line)
    return "\n".join(lines) + "\n"


def clean() -> None:
    """Takes away what the blocks make."""
    for name in ["varvelog-data", "varvelog-proto"]:
        shutil.rmtree(ROOT / name, ignore_errors=True)


def main() -> int:
    program = pathlib.Path(sys.argv[1]).resolve()
    script = shell_script(blocks())
    path = f"{program.parent}:{os.environ['PATH']}"
    clean()
    try:
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=ROOT,
            env=dict(os.environ, PATH=path),
            timeout=1500,
            check=False,
        )
    finally:
        clean()
    print(f"README: {'every block ran' if done.returncode == 0 else 'a block failed'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
