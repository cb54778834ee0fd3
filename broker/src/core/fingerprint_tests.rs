use super::*;

fn of(code: &str, message: &str, stack: &str) -> u64 {
    FailureText::cut(code, message, stack).fingerprint(ErrorClass::Transient)
}

fn of_stack(stack: &str) -> u64 {
    of("E", "", stack)
}

const JAVA: &str = "java.io.IOException: order 17 of 0x7f3a
\tat com.acme.Orders.load(Orders.java:41)
\tat com.acme.Worker$3.run(Worker.java:7)
\tat java.lang.Thread.run(Thread.java:833)
\tat java.lang.Thread.exit(Thread.java:900)";

#[test]
fn it_is_the_same_for_ever_since_it_is_kept_in_logs() {
    assert_eq!(
        format!("{:016x}", of("E_IO", "m", "at f (a.js:1)")),
        "7ea05a699332c5c3"
    );
    assert_eq!(
        format!("{:016x}", of("", "order 17", "")),
        "c7bef6831735c56e"
    );
}

#[test]
fn class_and_code_tell_failures_apart_and_the_message_only_where_there_is_no_code() {
    let text = FailureText::cut("HTTP_404", "m", "");
    let classes = ErrorClass::ALL.map(|class| text.fingerprint(class));
    let distinct: std::collections::BTreeSet<_> = classes.into_iter().collect();
    assert_eq!(distinct.len(), classes.len());
    assert_ne!(of("HTTP_404", "", ""), of("HTTP_500", "", ""));
    assert_eq!(of("HTTP_404", "one", ""), of("HTTP_404", "other", ""));
    assert_ne!(of("", "one", ""), of("", "other", ""));
    assert_eq!(
        of("", "order 17 is late", ""),
        of("", "order 4 is late", "")
    );
}

#[test]
fn numbers_addresses_and_hashes_do_not_count() {
    let pairs = [
        ("at f (a.js:12:5)", "at f (a.js:9:31)"),
        ("at f at 0x7ffeDEADbeef", "at f at 0x10"),
        ("at f commit 3fa9c01", "at f commit 77b2e4d"),
        ("at f commit deadbeef", "at f commit cafebabe"),
        ("at worker12.run", "at worker7.run"),
        (
            "at f 550e8400-e29b-41d4-abcd-446655440000",
            "at f 123e4567-e89b-12d3-a456-426614174000",
        ),
    ];
    for (one, other) in pairs {
        assert_eq!(of_stack(one), of_stack(other), "{one} and {other}");
    }
    assert_ne!(
        of_stack("at face"),
        of_stack("at fade"),
        "short words are names"
    );
}

#[test]
fn only_the_first_three_frames_count_and_no_line_before_them() {
    let other_message = JAVA.replace("IOException: order 17", "Other: user 3");
    assert_eq!(of_stack(JAVA), of_stack(&other_message));
    let other_fourth = JAVA.replace("Thread.exit", "Thread.sleep");
    assert_eq!(of_stack(JAVA), of_stack(&other_fourth));
    let other_third = JAVA.replace("Thread.run(", "Thread.start(");
    assert_ne!(of_stack(JAVA), of_stack(&other_third));
    let cause_cut_off = format!("{JAVA}\n{}", "\tat x.y(z.java:1)\n".repeat(1_000));
    assert_eq!(of_stack(JAVA), of_stack(&cause_cut_off));
}

#[test]
fn frames_are_found_as_languages_write_them() {
    let stacks = [
        concat!(
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\n",
            "    g()\n  File \"b.py\", line 1, in g"
        ),
        "Error: x\n    at f (/app/a.js:1:2)\n    at g (/app/b.js:3:4)",
        concat!(
            "panic: x\n\ngoroutine 1 [running]:\nmain.f(0x1)\n\t/src/a.go:3 +0x1d\n",
            "main.g(0x2)\n\t/src/b.go:9 +0x2c"
        ),
        "thread 'main' panicked\n   0: app::f\n   1: app::g",
        "PHP Fatal error: x\n#0 /app/a.php(3): f()\n#1 /app/b.php(9): g()",
        "a.rb:3:in 'f': x (RuntimeError)\n\tfrom b.rb:9:in 'g'",
    ];
    for stack in stacks {
        let found = frames(stack);
        assert_eq!(found.len(), 2, "{found:?}");
    }
    assert_eq!(frames("one\n\n two\nthree\nfour"), ["one", "two", "three"]);
    assert!(frames("").is_empty());
}
