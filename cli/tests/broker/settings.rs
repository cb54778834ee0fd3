//! Settings of groups by command.

use serde_json::json;

use crate::running::started;

#[test]
fn a_group_is_made_with_settings_and_changed_by_what_is_named() {
    let (_folder, broker) = started();
    broker.fine("topic create orders");
    let made = broker.json(
        "group create email orders --mode queue --on-failure hold --visibility-timeout 1m \
         --max-deliveries 4 --delay 1s,10s --rule VAL_*=permanent --dead-letter-max-bytes 1MiB",
    );
    let config = &made["config"];
    assert_eq!(config["mode"], "GROUP_MODE_QUEUE");
    assert_eq!(config["onFailure"], "ON_FAILURE_HOLD");
    assert_eq!(config["visibilityTimeout"], "60s");
    assert_eq!(config["retry"]["maxDeliveries"], 4);
    assert_eq!(config["retry"]["delays"], json!(["1s", "10s"]));
    assert_eq!(config["deadLetter"]["maxBytes"], "1048576");
    broker.refused("group create email orders", 4, "[GROUP_EXISTS]");
    broker.fine("group create email orders --if-not-exists");
    broker.refused("group update email", 2, "nothing to change");
    let dry = broker.json("group update email --max-deliveries 7 --dry-run");
    assert_eq!(dry["config"]["retry"]["maxDeliveries"], 7);
    let changed = broker.json("group update email --paused --retry-base 2s --jitter-ratio 0");
    let config = &changed["config"];
    assert_eq!(config["paused"], true);
    assert_eq!(config["retry"]["base"], "2s");
    assert_eq!(config["retry"]["delays"], json!([]));
    assert_eq!(
        config["retry"]["maxDeliveries"], 4,
        "what was not named stayed"
    );
    assert_eq!(config["retry"]["rules"][0]["codePattern"], "VAL_*");
    let changed = broker.json("group update email --resume --retry list --no-rules");
    assert_eq!(changed["config"]["paused"], false);
    assert_eq!(changed["config"]["retry"]["rules"], json!([]));
    assert_eq!(
        changed["config"]["retry"]["delays"],
        json!(["1s", "10s", "100s"]),
        "the preset, as far as deliveries go"
    );
    let shown = broker.fine("group describe email -o table");
    assert!(shown.contains("those of its key wait"), "{shown}");
}

#[test]
fn settings_out_of_their_bounds_are_refused_by_name() {
    let (_folder, broker) = started();
    broker.fine("topic create orders");
    broker.refused("group create a.b orders", 2, "error: ");
    broker.refused("group create email nothing", 3, "[TOPIC_NOT_FOUND]");
    let long = "group create email orders --visibility-timeout 13h";
    broker.refused(long, 2, "visibility_timeout");
    let many = "group create email orders --max-deliveries 2 --delay 1s,2s";
    broker.refused(many, 2, "retry.delays");
    broker.refused(
        "group create email orders --delay soon",
        2,
        "is no duration",
    );
    assert_eq!(broker.fine("group list -o name"), "");
}
