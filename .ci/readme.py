"""Runs every block of README.md in a copy of the checkout, in order, in one shell.

usage: python3 .ci/readme.py PATH_OF_VARVELOG

Shell blocks run as they stand, with two exceptions: the test command, which CI runs as its first
step, is checked to be that step; the demo is told to end by itself. Python blocks must be the
programs in examples/python, which CI runs against a broker.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

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
            lines.append(f"printf '$ %s\\n' {line!r} >&2")
            lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    program = pathlib.Path(sys.argv[1]).resolve()
    script = shell_script(blocks())
    with tempfile.TemporaryDirectory() as folder:
        # What the blocks make stays out of the checkout; what they read is linked.
        work = pathlib.Path(folder)
        for entry in ROOT.iterdir():
            (work / entry.name).symlink_to(entry)
        path = f"{program.parent}:{subprocess.os.environ['PATH']}"
        environment = dict(subprocess.os.environ, PATH=path)
        done = subprocess.run(
            ["bash", "-c", script], cwd=work, env=environment, timeout=1500, check=False
        )
    print(f"README: {'every block ran' if done.returncode == 0 else 'a block failed'}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
