use serde_json::json;

use super::{Block, Capture, Format, Output, View};

fn shown(format: Format) -> String {
    let view = View {
        blocks: vec![
            Block::Pairs(vec![("name", "flights".into()), ("id", String::new())]),
            Block::Table {
                title: "partitions".into(),
                header: vec!["PARTITION", ">LATEST", "LEADER"],
                rows: vec![
                    vec!["0".into(), "5".into(), "a".into()],
                    vec!["1".into(), "12,345".into(), String::new()],
                ],
            },
            Block::Text("2 partitions".into()),
        ],
        json: json!({"topics": [{"name": "flights"}]}),
        items: vec![json!({"name": "flights"})],
        names: vec!["flights".into()],
    };
    let capture = Capture::default();
    Output::into(format, Box::new(capture.clone()))
        .show(&view)
        .unwrap();
    capture.text()
}

#[test]
fn a_table_is_aligned_and_has_no_trailing_blanks() {
    insta::assert_snapshot!(shown(Format::Table), @r"
    name  flights

    partitions
    PARTITION  LATEST  LEADER
    0               5  a
    1          12,345

    2 partitions
    ");
}

#[test]
fn json_is_one_object_and_jsonl_one_a_line() {
    let whole = "{\n  \"topics\": [\n    {\n      \"name\": \"flights\"\n    }\n  ]\n}\n";
    assert_eq!(shown(Format::Json), whole);
    assert_eq!(shown(Format::Jsonl), "{\"name\":\"flights\"}\n");
    assert_eq!(shown(Format::Name), "flights\n");
}
