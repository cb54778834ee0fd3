//! `varvelog man`: manual pages.

use std::path::{Path, PathBuf};

use clap::Args;
use clap_mangen::Man;

use crate::context::Context;
use crate::failure::Failure;
use crate::run::command;

/// Arguments.
#[derive(Args, Clone, Debug)]
pub(crate) struct ManArgs {
    /// Write one page for each command into this folder instead of printing the first
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
}

pub(crate) async fn run(args: &ManArgs, context: &mut Context) -> Result<(), Failure> {
    let mut root = command();
    root.build();
    if let Some(dir) = &args.dir {
        return write_pages(&root, dir, context).await;
    }
    let mut page = Vec::new();
    Man::new(root).render(&mut page)?;
    context.output.raw(&page)?;
    Ok(context.output.flush()?)
}

async fn write_pages(root: &clap::Command, dir: &Path, context: &Context) -> Result<(), Failure> {
    let shown = dir.display().to_string();
    tokio::fs::create_dir_all(dir)
        .await
        .map_err(|error| Failure::io(&shown, &error))?;
    let pages = pages(root, "varvelog");
    for (name, page) in &pages {
        let path = dir.join(format!("{name}.1"));
        tokio::fs::write(&path, page)
            .await
            .map_err(|error| Failure::io(&shown, &error))?;
    }
    context
        .output
        .note(&format!("{} pages in {shown}", pages.len()));
    Ok(())
}

/// Name and text of the page of a command and of those below it.
fn pages(command: &clap::Command, name: &str) -> Vec<(String, Vec<u8>)> {
    let mut text = Vec::new();
    let titled = command.clone().name(name.to_owned());
    Man::new(titled)
        .render(&mut text)
        .expect("writing to memory cannot fail");
    let mut all = vec![(name.to_owned(), text)];
    for below in command
        .get_subcommands()
        .filter(|below| below.get_name() != "help")
    {
        all.extend(pages(below, &format!("{name}-{}", below.get_name())));
    }
    all
}
