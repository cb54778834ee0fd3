//! `varvelog config show`.

use clap::Args;
use serde_json::{Value, json};
use varvelog_broker::config::Entry;
use varvelog_proto::v1;

use super::sources::{SourceArgs, load};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{Block, View, show_text, to_json};

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ShowArgs {
    /// Only keys that begin so
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Ask the running broker instead of reading file, environment and options
    #[arg(
        long,
        conflicts_with_all = ["file", "data_dir", "listen", "http_listen", "insecure", "set"]
    )]
    running: bool,
    #[command(flatten)]
    sources: SourceArgs,
}

pub(crate) async fn run(args: ShowArgs, context: &mut Context) -> Result<(), Failure> {
    let entries = if args.running {
        ask(&args.prefix, context).await?
    } else {
        let config = load(&args.sources)?;
        let shown = config
            .entries()
            .iter()
            .filter(|entry| entry.key.starts_with(&args.prefix));
        shown.map(as_proto).collect()
    };
    context.output.show(&entries_view(&entries))?;
    Ok(())
}

async fn ask(prefix: &str, context: &Context) -> Result<Vec<v1::ConfigEntry>, Failure> {
    let connection = context.connect().await?;
    let request = connection.request(v1::GetConfigRequest {
        prefix: prefix.to_owned(),
    });
    let answer = connection
        .answer(connection.cluster().get_config(request))
        .await?;
    Ok(answer.entries)
}

fn as_proto(entry: &Entry) -> v1::ConfigEntry {
    v1::ConfigEntry {
        key: entry.key.to_owned(),
        value: entry.value.clone(),
        source: entry.source.to_string(),
        sensitive: entry.sensitive,
    }
}

fn entries_view(entries: &[v1::ConfigEntry]) -> View {
    let row = |entry: &v1::ConfigEntry| {
        let value = if entry.sensitive {
            String::from("(secret)")
        } else {
            show_text(entry.value.as_bytes())
        };
        vec![entry.key.clone(), value, entry.source.clone()]
    };
    let items: Vec<Value> = entries
        .iter()
        .map(|entry| to_json("ConfigEntry", entry))
        .collect();
    View {
        blocks: vec![Block::Table {
            title: String::new(),
            header: vec!["KEY", "VALUE", "SOURCE"],
            rows: entries.iter().map(row).collect(),
        }],
        json: json!({ "entries": items }),
        items,
        names: entries.iter().map(|entry| entry.key.clone()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_show_their_source_and_no_secret() {
        let entry = |key: &str, value: &str, sensitive| v1::ConfigEntry {
            key: key.into(),
            value: value.into(),
            source: "file".into(),
            sensitive,
        };
        let view = entries_view(&[entry("wal.sync", "always", false), entry("x", "", true)]);
        insta::assert_snapshot!(view.to_text(str::to_owned), @r"
        KEY       VALUE     SOURCE
        wal.sync  always    file
        x         (secret)  file
        ");
        let first = view.items.first().unwrap().to_string();
        let expected = r#"{"key":"wal.sync","value":"always","source":"file","sensitive":false}"#;
        assert_eq!(first, expected);
    }
}
