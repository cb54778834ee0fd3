//! Rules that a look at one file decides.

use super::sources::{self, Source};

/// A finding, as `path:line: what`.
type Findings = Vec<String>;

fn assert_none(findings: &Findings) {
    assert!(
        findings.is_empty(),
        "{} findings:\n{}",
        findings.len(),
        findings.join("\n")
    );
}

fn check(each: impl Fn(&Source, &mut Findings)) {
    let mut findings = Findings::new();
    for source in sources::all() {
        each(&source, &mut findings);
    }
    assert_none(&findings);
}

/// Code with its comments and the content of its texts taken out, line by line.
fn bare(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    let mut text = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if text => drop(chars.next()),
            '"' => {
                text = !text;
                out.push(c);
            }
            '/' if !text && chars.peek() == Some(&'/') => break,
            _ if text => {}
            _ => out.push(c),
        }
    }
    out
}

#[test]
fn bare_takes_out_comments_and_texts() {
    assert_eq!(bare(r#"let a = "x // \" y"; // unsafe"#), r#"let a = ""; "#);
}

const FILE_LINES_MAX: usize = 450;
const LINE_COLUMNS_MAX: usize = 100;
const FUNCTION_LINES_MAX: usize = 70;

#[test]
fn a_source_file_has_at_most_450_lines() {
    check(|source, findings| {
        let lines = source.text.lines().count();
        if lines > FILE_LINES_MAX {
            findings.push(format!("{}: {lines} lines", source.path));
        }
    });
}

#[test]
fn a_line_has_at_most_100_columns() {
    check(|source, findings| {
        for (index, line) in source.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > LINE_COLUMNS_MAX {
                findings.push(format!("{}:{}: {columns} columns", source.path, index + 1));
            }
        }
    });
}

#[test]
fn a_function_has_at_most_70_lines() {
    check(|source, findings| {
        let mut open: Vec<(usize, usize)> = Vec::new();
        for (index, line) in source.text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let code = bare(line);
            let code = code.trim();
            if is_function(code) && !code.ends_with(';') && !code.ends_with('}') {
                open.push((indent, index + 1));
            }
            if code.starts_with('}') && open.last().is_some_and(|(at, _)| *at == indent) {
                let (_, start) = open.pop().expect("one is open");
                let lines = index + 2 - start;
                if lines > FUNCTION_LINES_MAX {
                    findings.push(format!("{}:{start}: {lines} lines", source.path));
                }
            }
        }
    });
}

fn is_function(code: &str) -> bool {
    const WORDS: [&str; 7] = [
        "pub",
        "pub(super)",
        "pub(crate)",
        "const",
        "async",
        "unsafe",
        "fn",
    ];
    let mut words = code.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if word == "fn" {
            return words.next().is_some();
        }
        if !WORDS.contains(&word) && !word.starts_with("pub(in") {
            return false;
        }
    }
    false
}

#[test]
fn unsafe_code_is_in_mapped_rs_alone() {
    check(|source, findings| {
        if source.path == "log-store/src/mapped.rs" {
            return;
        }
        for (index, line) in source.text.lines().enumerate() {
            let code = bare(line);
            if code
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "unsafe")
            {
                findings.push(format!("{}:{}: unsafe", source.path, index + 1));
            }
        }
    });
}

/// The files that may read a clock: one for each program that has one.
const CLOCKS: [&str; 3] = [
    "broker/src/clock.rs",
    "client/src/clock.rs",
    "cli/src/clock.rs",
];

#[test]
fn a_clock_is_read_in_clock_rs_alone() {
    check(|source, findings| {
        if CLOCKS.contains(&source.path.as_str()) {
            return;
        }
        for (number, line) in source.code_lines() {
            let code = bare(line);
            for call in [
                "Instant::now(",
                "SystemTime::now(",
                "Timestamp::now(",
                "Zoned::now(",
            ] {
                if code.contains(call) {
                    findings.push(format!("{}:{number}: {call})", source.path));
                }
            }
        }
    });
}

#[test]
fn a_file_name_is_formatted_in_layout_rs_alone() {
    check(|source, findings| {
        if source.path == "log-store/src/layout.rs" || !source.path.contains("/src/") {
            return;
        }
        for (number, line) in source.code_lines() {
            let code = line.split("//").next().unwrap_or_default();
            for suffix in [
                ".log\"",
                ".index\"",
                ".timeindex\"",
                ".wal\"",
                ".ckpt\"",
                ":020}",
            ] {
                if code.contains(suffix) {
                    findings.push(format!("{}:{number}: {suffix}", source.path));
                }
            }
        }
    });
}

/// Modules that decide and apply, and must be free of runtime, contract and clock.
fn is_machine(path: &str) -> bool {
    const OUTSIDE: [&str; 12] = [
        "mod.rs",
        "handle.rs",
        "run.rs",
        "sync.rs",
        "applier.rs",
        "pending.rs",
        "answer.rs",
        "engine.rs",
        "recover.rs",
        "flusher.rs",
        "maintain.rs",
        "timers.rs",
    ];
    let Some(rest) = path.strip_prefix("broker/src/core/") else {
        return false;
    };
    rest.contains('/') || !OUTSIDE.contains(&rest)
}

#[test]
fn the_store_and_the_machines_know_no_runtime_and_no_contract() {
    check(|source, findings| {
        let store = source.path.starts_with("log-store/src/");
        let machine = is_machine(&source.path);
        if !store && !machine {
            return;
        }
        for (number, line) in source.code_lines() {
            let code = bare(line);
            let mut banned = vec![
                "tokio::",
                "tonic::",
                "prost::",
                "varvelog_proto",
                "async fn",
            ];
            if machine {
                banned.extend(["std::fs", "HashSet<"]);
            }
            for word in banned {
                if code.contains(word) {
                    findings.push(format!("{}:{number}: {word}", source.path));
                }
            }
        }
    });
}

#[test]
fn a_folder_of_modules_has_a_mod_rs_without_logic() {
    check(|source, findings| {
        if !source.path.ends_with("/mod.rs") || source.is_test() {
            return;
        }
        for (number, line) in source.code_lines() {
            if is_function(bare(line).trim()) {
                findings.push(format!("{}:{number}: a function in a mod.rs", source.path));
            }
        }
    });
}

#[test]
fn nothing_speaks_of_unfinished_work() {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("XX", "X:"),
    ];
    check(|source, findings| {
        for (index, line) in source.text.lines().enumerate() {
            for mark in marks {
                if line.contains(mark) {
                    findings.push(format!("{}:{}: {mark}", source.path, index + 1));
                }
            }
        }
    });
}
