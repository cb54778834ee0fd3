//! Where the broker's configuration comes from: file, environment, options.

use std::path::{Path, PathBuf};

use clap::Args;
use varvelog_broker::config::{Config, FileText, Sources};

use crate::failure::Failure;
use crate::parse;

/// Options that set configuration.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SourceArgs {
    /// The configuration file
    #[arg(
        short = 'c',
        long = "config",
        env = "VARVELOG_CONFIG",
        value_name = "FILE"
    )]
    pub(crate) file: Option<PathBuf>,
    /// Folder of all data [key: `data_dir`]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Where gRPC is served [key: `listen`]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<String>,
    /// Where dashboard, metrics and the JSON door are served [key: `http_listen`]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) http_listen: Option<String>,
    /// Serve other machines without TLS and authentication [key: `insecure`]
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Set any key, as --set wal.sync=never; may be given again
    #[arg(long = "set", value_parser = parse::pair, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<(String, String)>,
}

/// Reads file and environment and lays the options over them.
pub(crate) fn load(args: &SourceArgs) -> Result<Config, Failure> {
    let file = args.file.as_deref().map(read_file).transpose()?;
    let sources = Sources {
        file,
        environment: environment()?,
        flags: flags(args)?,
    };
    Config::load(&sources).map_err(|error| {
        Failure::usage(error.to_string()).hint("varvelog config template lists every key")
    })
}

fn read_file(path: &Path) -> Result<FileText, Failure> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("configuration file {name}: {error}")))?;
    Ok(FileText { name, text })
}

fn environment() -> Result<Vec<(String, String)>, Failure> {
    let ours = std::env::vars_os()
        .filter_map(|(name, value)| name.into_string().ok().map(|name| (name, value)))
        .filter(|(name, _)| name.starts_with("VARVELOG__"));
    let text = |(name, value): (String, std::ffi::OsString)| match value.into_string() {
        Ok(value) => Ok((name, value)),
        Err(_) => Err(Failure::usage(format!(
            "{name}: its value is no UTF-8 text"
        ))),
    };
    ours.map(text).collect()
}

fn flags(args: &SourceArgs) -> Result<Vec<(String, String)>, Failure> {
    let mut flags = args.set.clone();
    let mut push = |key: &str, value: String| flags.push((key.to_owned(), value));
    if let Some(dir) = &args.data_dir {
        let text = dir
            .to_str()
            .ok_or_else(|| Failure::usage("--data-dir is no UTF-8 text"))?;
        push("data_dir", text.to_owned());
    }
    if let Some(address) = &args.listen {
        push("listen", address.clone());
    }
    if let Some(address) = &args.http_listen {
        push("http_listen", address.clone());
    }
    if args.insecure {
        push("insecure", String::from("true"));
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_of_its_own_wins_over_set() {
        let args = SourceArgs {
            listen: Some("127.0.0.1:9".into()),
            insecure: true,
            set: vec![
                ("listen".into(), "127.0.0.1:8".into()),
                ("edges".into(), "2".into()),
            ],
            ..SourceArgs::default()
        };
        let config = load(&args).unwrap();
        assert_eq!(config.listen.port(), 9);
        assert_eq!(config.edges, 2);
        assert!(config.insecure);
    }

    #[test]
    fn a_wrong_value_is_a_usage_error_with_a_hint() {
        let args = SourceArgs {
            listen: Some("0.0.0.0:7461".into()),
            ..SourceArgs::default()
        };
        let failure = load(&args).unwrap_err();
        assert_eq!(failure.exit, crate::exit::Exit::Usage);
        assert!(failure.message.contains("--insecure"), "{failure}");
        let file = Some(PathBuf::from("/nonexistent/varvelog.toml"));
        let failure = load(&SourceArgs {
            file,
            ..SourceArgs::default()
        })
        .unwrap_err();
        assert!(
            failure.message.contains("/nonexistent/varvelog.toml"),
            "{failure}"
        );
    }
}
