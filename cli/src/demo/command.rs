//! Arguments and course of `varvelog demo`.

use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use varvelog_broker::config::{Config, Sources};
use varvelog_broker::{BrokerHandle, start};
use varvelog_client::{Admin, CallError, NewTopic};

use super::{flights, readers};
use crate::clock::Since;
use crate::connect::{Connection, Server};
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::group::{groups_of_topic, groups_view};
use crate::logging;
use crate::output::{Progress, View, show_age, show_count};
use crate::serve::{StopSignals, fenced, start_failure, stop_failure};
use crate::topic::topic_view;

const TOPIC: &str = "flights";
const PARTITIONS: u32 = 6;

/// Arguments.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DemoArgs {
    /// What to show
    #[arg(long, value_enum, default_value_t = Scenario::Flights)]
    scenario: Scenario,
    /// End after the show instead of serving until Ctrl-C
    #[arg(long)]
    exit: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Scenario {
    Flights,
}

pub(crate) async fn run(args: DemoArgs, context: &mut Context) -> Result<(), Failure> {
    let Scenario::Flights = args.scenario;
    let mut stop = StopSignals::watch()?;
    let folder = tempfile::Builder::new()
        .prefix("varvelog-demo-")
        .tempdir()
        .map_err(|error| Failure::io("cannot make a temporary folder", &error))?;
    let config = config(folder.path())?;
    logging::start_for_broker(&config.log)?;
    let broker = start(config).await.map_err(|error| start_failure(&error))?;
    let ended = tokio::select! {
        ended = course(args, &broker, context) => ended,
        failure = broker.failed() => Err(fenced(&failure)),
        () = stop.next() => Ok(()),
    };
    let stopped = broker.stop().await.map_err(|error| stop_failure(&error));
    let removed = folder
        .close()
        .map_err(|error| Failure::io("removing the folder", &error));
    ended.and(stopped).and(removed)
}

fn config(folder: &Path) -> Result<Config, Failure> {
    let folder = folder
        .to_str()
        .ok_or_else(|| Failure::usage("TMPDIR is no UTF-8 text"))?;
    let flags = [
        ("data_dir", folder),
        ("listen", "127.0.0.1:0"),
        ("http_listen", "127.0.0.1:0"),
        ("log.filter", "warn"),
    ];
    let flags = flags
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec();
    let sources = Sources {
        flags,
        ..Sources::default()
    };
    Config::load(&sources).map_err(|error| Failure::usage(error.to_string()))
}

/// The show, and then waiting for Ctrl-C, which ends this future.
async fn course(
    args: DemoArgs,
    broker: &BrokerHandle,
    context: &mut Context,
) -> Result<(), Failure> {
    let server = broker.grpc_addr().to_string();
    say(
        context,
        &format!("broker  grpc={server}  http=http://{}", broker.http_addr()),
    )?;
    let connection = Server {
        name: server.clone(),
        timeout: context.global.timeout,
    };
    let connection = connection.connect().await?;
    let admin = Admin::new(&connection);
    let failure = |error: CallError| connection.failure(error);
    let topic = NewTopic::new(TOPIC).partitions(PARTITIONS);
    admin.create_topic(topic).await.map_err(failure)?;
    traffic(&connection, context).await?;
    let topic = admin.topic(TOPIC).await.map_err(failure)?;
    let groups = groups_of_topic(&connection, TOPIC).await?;
    let zone = context.output.zone.clone();
    show(context, &topic_view(&topic, &[], &zone))?;
    show(context, &groups_view(&groups))?;
    if args.exit {
        return Ok(());
    }
    say(
        context,
        &format!("\nTry, in another terminal:{}", commands(&server)),
    )?;
    say(context, "\nCtrl-C stops the broker and removes its folder.")?;
    std::future::pending().await
}

/// Two groups wait; then the flights go in and both read all of them.
async fn traffic(connection: &Connection, context: &mut Context) -> Result<(), Failure> {
    let total = flights::count();
    let many = readers::join(connection, TOPIC, "boarding", 3).await?;
    let one = readers::join(connection, TOPIC, "audit", 1).await?;
    let progress = Progress::new("producing", Some(total), context.output.quiet);
    let begun = Since::now();
    let (produced, many, one) = tokio::try_join!(
        produce(connection, &progress),
        many.read_all(total),
        one.read_all(total),
    )?;
    let count = show_count(i64::try_from(total).unwrap_or(i64::MAX));
    let took = show_age(produced);
    say(
        context,
        &format!("produced {count} flights, keyed by origin, in {took}"),
    )?;
    say(context, &many.to_text())?;
    say(context, &one.to_text())?;
    say(
        context,
        &format!(
            "all read and settled by both after {}\n",
            show_age(begun.passed())
        ),
    )
}

async fn produce(connection: &Connection, progress: &Progress) -> Result<Duration, Failure> {
    let begun = Since::now();
    let produced = flights::produce(connection, TOPIC, progress).await;
    progress.finish();
    produced.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    Ok(begun.passed())
}

fn commands(server: &str) -> String {
    [
        "tail flights -n 5 -e",
        "consume flights -g crew --limit 5",
        "group describe boarding",
    ]
    .map(|command| format!("\n  varvelog {command} --server {server}"))
    .concat()
}

fn show(context: &mut Context, view: &View) -> Result<(), Failure> {
    say(context, &view.to_text(str::to_owned))
}

fn say(context: &mut Context, text: &str) -> Result<(), Failure> {
    context.output.raw(text.as_bytes())?;
    context.output.raw(b"\n")?;
    Ok(context.output.flush()?)
}
