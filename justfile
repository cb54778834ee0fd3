# The front door: `just check` is what a change must pass.

set shell := ["bash", "-uc"]

# What CI runs after the README's test command.
check: fmt lint docs deny proto slow

# Formatting.
fmt:
    cargo fmt --all --check

# Clippy, warnings are errors.
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Documentation, warnings are errors.
docs:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# All tests, as the README has it.
test:
    cargo test --workspace --locked

# Licences, sources and duplicate crates.
deny:
    python3 .ci/licences.py

# Style of the contract, and whether it broke what was released.
proto:
    .ci/proto

# Checks with the release binary: other languages, the README, the alert rules.
slow:
    .ci/slow

# Mend what tools can mend.
fix:
    cargo fmt --all
    cargo clippy --workspace --all-targets --fix --allow-dirty

# Longer runs of the enumerations and kill loops.
soak:
    VARVELOG_SOAK=1 cargo test --release -p varvelog-tests --locked

# One benchmark, or all.
bench name="":
    cargo bench -p varvelog-benches --locked -- {{name}}
