use std::collections::BTreeSet;
use std::time::Duration;

use super::*;

fn with_file(text: &str) -> Sources {
    let file = FileText {
        name: "varvelog.toml".into(),
        text: text.into(),
    };
    Sources {
        file: Some(file),
        ..Sources::default()
    }
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

fn load_file(text: &str) -> Result<Config, String> {
    Config::load(&with_file(text)).map_err(|error| error.to_string())
}

fn refusal(text: &str) -> String {
    load_file(text).map(|_| ()).expect_err("should be refused")
}

fn entry<'a>(config: &'a Config, key: &str) -> &'a Entry {
    config
        .entries()
        .iter()
        .find(|entry| entry.key == key)
        .expect("a known key")
}

#[test]
fn the_defaults_are_the_documented_ones() {
    let config = Config::load(&Sources::default()).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:7461");
    assert_eq!(config.http_listen.to_string(), "127.0.0.1:7462");
    assert_eq!(
        config.wal,
        WalSettings {
            sync: SyncPolicy::Always,
            file_bytes: 64 << 20
        }
    );
    assert_eq!(config.checkpoint.wal_bytes, 256 << 20);
    assert_eq!(config.checkpoint.interval, Duration::from_mins(1));
    assert_eq!(config.retention.check_interval, Duration::from_mins(1));
    assert_eq!(config.topics.unlink_delay, Duration::from_mins(1));
    assert_eq!(config.disk.reserve, DiskReserve::Auto);
    assert_eq!(config.groups.offset_retention, Duration::from_hours(7 * 24));
    assert_eq!(config.producers.expiry, Duration::from_hours(7 * 24));
    assert_eq!(config.limits.request_bytes, 16 << 20);
    assert_eq!(
        (config.limits.topics, config.limits.partitions),
        (1000, 10_000)
    );
    assert_eq!(
        (
            config.limits.connections,
            config.limits.connections_per_address
        ),
        (1000, 100)
    );
    assert_eq!(config.shutdown.grace, Duration::from_secs(10));
    assert!(
        config
            .entries()
            .iter()
            .all(|entry| entry.source == Source::Default)
    );
}

#[test]
fn names_are_unique_and_every_key_has_an_entry() {
    let names: BTreeSet<_> = KEYS.iter().map(|key| key.name).collect();
    assert_eq!(names.len(), KEYS.len());
    let config = Config::load(&Sources::default()).unwrap();
    let entries: Vec<_> = config.entries().iter().map(|entry| entry.key).collect();
    assert_eq!(entries, KEYS.iter().map(|key| key.name).collect::<Vec<_>>());
}

#[test]
fn a_later_layer_replaces_an_earlier_and_is_named_as_the_source() {
    let mut sources =
        with_file("[wal]\nsync = \"never\"\nfile_bytes = 2097152\n[limits]\ntopics = 7");
    sources.environment = pairs(&[
        ("VARVELOG__WAL__SYNC", "interval:100ms"),
        ("VARVELOG__LIMITS__TOPICS", "8"),
        ("VARVELOG_SERVER", "not ours"),
        ("PATH", "/bin"),
    ]);
    sources.flags = pairs(&[("limits.topics", "9"), ("limits.topics", "10")]);
    let config = Config::load(&sources).unwrap();
    assert_eq!(
        config.wal.sync,
        SyncPolicy::Interval(Duration::from_millis(100))
    );
    assert_eq!(config.wal.file_bytes, 2 << 20);
    assert_eq!(config.limits.topics, 10);
    assert_eq!(entry(&config, "wal.sync").source, Source::Environment);
    assert_eq!(entry(&config, "wal.sync").value, "interval:100ms");
    assert_eq!(entry(&config, "wal.file_bytes").source, Source::File);
    assert_eq!(entry(&config, "wal.file_bytes").value, "2 MiB");
    assert_eq!(entry(&config, "limits.topics").source, Source::Flag);
    assert_eq!(entry(&config, "limits.groups").source, Source::Default);
}

#[test]
fn an_unknown_key_is_refused_with_line_and_nearest_name() {
    assert_eq!(
        refusal("[wal]\n\nsink = \"always\""),
        "varvelog.toml:3: unknown key `wal.sink`, did you mean `wal.sync`?"
    );
    assert_eq!(
        refusal("[limit]\ntopics = 3"),
        "varvelog.toml:1: unknown key `limit.topics`, did you mean `limits.topics`?"
    );
    assert_eq!(
        refusal("unlink_delay = \"1s\""),
        "varvelog.toml:1: unknown key `unlink_delay`, did you mean `topics.unlink_delay`?"
    );
    assert_eq!(
        refusal("[zzzz]"),
        "varvelog.toml:1: unknown key `zzzz`; `varvelog config template` lists every key"
    );
    assert!(refusal("wal = \"always\"").contains("unknown key `wal`"));
    assert!(refusal("[wal.sync]\nx = 1").contains("unknown key `wal.sync.x`"));
    let environment = pairs(&[("VARVELOG__WAL__SINC", "never")]);
    let error = Config::load(&Sources {
        environment,
        ..Sources::default()
    })
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "VARVELOG__WAL__SINC: unknown key `wal.sinc`, did you mean `wal.sync`?"
    );
    let flags = pairs(&[("edge", "1")]);
    let error = Config::load(&Sources {
        flags,
        ..Sources::default()
    })
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "command line: unknown key `edge`, did you mean `edges`?"
    );
}

#[test]
fn a_value_out_of_bounds_is_refused_with_bound_and_value() {
    assert_eq!(
        refusal("[wal]\nfile_bytes = \"1 KiB\""),
        "varvelog.toml:2: `wal.file_bytes` is \"1 KiB\": expected bytes, or a size with unit, \
         from 1 MiB to 1 GiB"
    );
    assert_eq!(
        refusal("[retention]\ncheck_interval = \"99ms\""),
        "varvelog.toml:2: `retention.check_interval` is \"99ms\": expected a duration with unit \
         (ms, s, m, h, d) from 100ms to 1day"
    );
    assert_eq!(
        refusal("edges = 257"),
        "varvelog.toml:1: `edges` is \"257\": expected a number from 0 to 256"
    );
    assert_eq!(
        refusal("[wal]\nsync = \"interval:2m\""),
        "varvelog.toml:2: `wal.sync` is \"interval:2m\": expected always, never or \
         interval:<duration> from 1ms to 1m"
    );
    assert_eq!(
        refusal("listen = \"example.org:1\""),
        "varvelog.toml:1: `listen` is \"example.org:1\": expected an IP address and port, as \
         127.0.0.1:7461"
    );
}

#[test]
fn values_of_the_wrong_type_are_refused() {
    for text in [
        "edges = -1",
        "edges = 1.5",
        "edges = [1]",
        "edges = true",
        "insecure = \"yes\"",
        "data_dir = \"\"",
        "[flush]\ninterval = 5",
        "[flush]\ninterval = 2001-01-01",
        "[log]\nformat = \"xml\"",
        "[disk]\nreserve = \"51%\"",
        "[disk]\nreserve = \"-1%\"",
        "[disk]\nreserve = \"+1%\"",
        "[disk]\nreserve = \"1.234%\"",
        "[disk]\nreserve = \"%\"",
        "[limits]\nmemory = \"lots\"",
    ] {
        assert!(refusal(text).contains("expected"), "{text}");
    }
}

#[test]
fn broken_toml_is_refused_with_its_line() {
    let error = refusal("edges = 1\nedges = 2");
    assert!(
        error.starts_with("varvelog.toml:2: not valid TOML: "),
        "{error}"
    );
    let error = refusal("[wal\nsync = 1");
    assert!(
        error.starts_with("varvelog.toml:1: not valid TOML: "),
        "{error}"
    );
}

#[test]
fn a_long_or_odd_value_is_quoted_and_cut() {
    let error = refusal(&format!("listen = \"\\u001b[2J{}\"", "x".repeat(5000)));
    assert!(error.contains("\\u{1b}[2J"), "{error}");
    assert!(error.len() < 250, "{error}");
}

#[test]
fn an_address_that_others_can_reach_needs_insecure() {
    for address in [
        "0.0.0.0:7461",
        "[::]:7461",
        "192.168.1.5:7461",
        "[::ffff:10.0.0.1]:1",
    ] {
        let error = refusal(&format!("listen = \"{address}\""));
        assert!(
            error.contains("`listen`") && error.contains("--insecure"),
            "{error}"
        );
        let error = refusal(&format!("http_listen = \"{address}\""));
        assert!(error.contains("`http_listen`"), "{error}");
        load_file(&format!("insecure = true\nlisten = \"{address}\"")).unwrap();
    }
    for address in [
        "127.0.0.9:1",
        "[::1]:1",
        "localhost:1",
        "[::ffff:127.0.0.1]:1",
    ] {
        load_file(&format!("listen = \"{address}\"")).unwrap();
    }
}

#[test]
fn values_that_cannot_hold_together_are_refused() {
    let error = refusal("http_listen = \"127.0.0.1:7461\"");
    assert!(
        error.contains("`listen`") && error.contains("`http_listen`"),
        "{error}"
    );
    load_file("listen = \"127.0.0.1:0\"\nhttp_listen = \"127.0.0.1:0\"").unwrap();
    let error = refusal("[limits]\nmemory = \"256 MiB\"");
    assert!(
        error.contains("`flush.unflushed_bytes` = 256 MiB"),
        "{error}"
    );
    assert!(error.contains("`limits.memory` = 256 MiB"), "{error}");
}

#[test]
fn a_reserve_is_a_size_a_share_or_the_smaller_of_both_defaults() {
    let reserve = |text: &str| {
        load_file(&format!("[disk]\nreserve = {text}"))
            .unwrap()
            .disk
            .reserve
    };
    assert_eq!(reserve("0").bytes(1 << 40), 0);
    assert_eq!(reserve("\"0%\"").bytes(1 << 40), 0);
    assert_eq!(reserve("\"2 GiB\"").bytes(1 << 30), 2 << 30);
    assert_eq!(reserve("\"2.5%\"").bytes(1000), 25);
    assert_eq!(reserve("\"2.05 %\"").bytes(10_000), 205);
    assert_eq!(reserve("\"50%\"").bytes(u64::MAX), u64::MAX / 2);
    assert_eq!(reserve("\"auto\"").bytes(1 << 40), 1 << 30);
    assert_eq!(reserve("\"auto\"").bytes(2000), 100);
}

#[test]
fn the_largest_record_leaves_room_in_a_request() {
    let largest = |request: &str| {
        let text = format!("[limits]\nrequest_bytes = \"{request}\"");
        load_file(&text).unwrap().limits.record_bytes_max()
    };
    assert_eq!(largest("2 MiB"), 1 << 20);
    assert_eq!(largest("16 MiB"), 15 << 20);
    assert_eq!(largest("64 MiB"), 16 << 20);
}

#[test]
fn the_template_lists_every_key_and_sets_nothing() {
    let text = template();
    let config = Config::load(&with_file(&text)).unwrap();
    assert!(
        config
            .entries()
            .iter()
            .all(|entry| entry.source == Source::Default)
    );
    assert!(text.lines().all(|line| line.len() <= 100));
}

#[test]
fn the_template_with_every_key_switched_on_is_the_default() {
    let switched_on = |line: &str| match line.strip_prefix('#') {
        Some(key) if !key.starts_with(' ') => format!("{key}\n"),
        _ => format!("{line}\n"),
    };
    let text: Vec<String> = template().lines().map(switched_on).collect();
    let text = text.concat();
    let config = Config::load(&with_file(&text)).unwrap();
    let default = Config::load(&Sources::default()).unwrap();
    for (set, unset) in config.entries().iter().zip(default.entries()) {
        assert_eq!((set.key, &set.value), (unset.key, &unset.value));
        assert_eq!(
            set.source,
            Source::File,
            "{} is missing in the template",
            set.key
        );
    }
}

#[test]
fn every_shown_value_reads_back_as_itself() {
    let text = "edges = 3\n[wal]\nsync = \"interval:1500ms\"\nfile_bytes = 1048577\n\
                [disk]\nreserve = \"2.05%\"\n[topics]\nunlink_delay = \"0s\"\n\
                [groups]\noffset_retention = \"36h\"";
    let config = load_file(text).unwrap();
    let flags = config
        .entries()
        .iter()
        .map(|e| (e.key.to_owned(), e.value.clone()))
        .collect();
    let again = Config::load(&Sources {
        flags,
        ..Sources::default()
    })
    .unwrap();
    let values = |config: &Config| -> Vec<_> {
        config
            .entries()
            .iter()
            .map(|entry| entry.value.clone())
            .collect()
    };
    assert_eq!(values(&config), values(&again));
    assert_eq!(entry(&config, "wal.file_bytes").value, "1048577 B");
}
