//! `--exec`: a worker whose handler is a command.

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use varvelog_client::{
    Admin, ConsumeError, HandlerError, Message, Worker, WorkerBuilder, WorkerSummary,
};

use super::command::ConsumeArgs;
use super::exec::{self, Handled};
use super::interrupts::Interrupts;
use crate::clock;
use crate::connect::Connection;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{complain, show_count};

/// How often a group is asked whether anything is left.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// A command at work on a record.
type Handling = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send>>;

/// What handlers share.
#[derive(Debug, Default)]
struct Shared {
    failed: AtomicU64,
    /// Why no command can be run. Held for as long as it takes to put it in or take it out.
    broken: Mutex<Option<Failure>>,
    stop: Notify,
}

/// Runs the command for each record, until told to end.
pub(super) async fn work(
    args: &ConsumeArgs,
    command: &str,
    connection: &Connection,
    context: &Context,
    interrupts: &Interrupts,
) -> Result<(), Failure> {
    let shared = Arc::new(Shared::default());
    let mut interrupted = false;
    let ended = {
        let stop = async {
            tokio::select! {
                () = interrupts.at_least(1) => interrupted = true,
                () = shared.stop.notified() => return,
                () = until_done(args, connection) => return,
            }
            context
                .output
                .note("what runs is finished first; once more to end at once");
        };
        let worker = builder(args, connection).handler(handler(command, &shared));
        tokio::select! {
            ended = worker.run_until(stop) => ended,
            () = interrupts.at_least(2) => return Err(Failure::silent(Exit::Interrupted)),
        }
    };
    let summary = ended.map_err(|error| failure(connection, error))?;
    if let Some(broken) = take(&shared) {
        return Err(broken);
    }
    tell(&summary, context);
    let failed = shared.failed.load(Ordering::Relaxed);
    let lost = summary.conflicts + summary.unsettled;
    if interrupted {
        Err(Failure::silent(Exit::Interrupted))
    } else if failed > 0 {
        let count = show_count(i64::try_from(failed).unwrap_or(i64::MAX));
        Err(Failure::new(
            Exit::Partly,
            format!("{count} records failed"),
        ))
    } else if lost > 0 {
        Err(Failure::silent(Exit::Partly))
    } else {
        Ok(())
    }
}

/// Each command takes its own time, so each record is given and settled by itself.
fn builder(args: &ConsumeArgs, connection: &Connection) -> WorkerBuilder {
    let mut builder = Worker::builder(connection, args.group.as_str())
        .topics(args.topics.iter().cloned())
        .concurrency(args.concurrency)
        .max_records(1)
        .accept_omitted(true)
        .member_name(args.member.as_str());
    if let Some(from) = args.from {
        builder = builder.start(from.to_client_position(clock::unix_ms()));
    }
    if let Some(limit) = args.limit {
        builder = builder.limit(limit);
    }
    builder
}

fn handler(command: &str, shared: &Arc<Shared>) -> impl Fn(Message) -> Handling + use<> {
    let (command, shared) = (Arc::<str>::from(command), shared.clone());
    move |message| {
        let (command, shared) = (command.clone(), shared.clone());
        Box::pin(async move {
            let handled = exec::handle(&command, &message).await;
            let Handled { failure, errors } = match handled {
                Ok(handled) => handled,
                Err(error) => {
                    put(&shared, error);
                    return Err(HandlerError::released());
                }
            };
            if !errors.is_empty() {
                complain(errors.trim_end());
            }
            match failure {
                None => Ok(()),
                Some(failure) => {
                    shared.failed.fetch_add(1, Ordering::Relaxed);
                    Err(failure.into())
                }
            }
        })
    }
}

fn put(shared: &Shared, failure: Failure) {
    if let Ok(mut broken) = shared.broken.lock() {
        broken.get_or_insert(failure);
    }
    shared.stop.notify_one();
}

fn take(shared: &Shared) -> Option<Failure> {
    shared.broken.lock().ok()?.take()
}

/// With `--exit`: until the group has the topics, and nothing left to do in any.
async fn until_done(args: &ConsumeArgs, connection: &Connection) {
    if !args.exit {
        return pending().await;
    }
    let admin = Admin::new(connection);
    loop {
        tokio::time::sleep(ASK_EVERY).await;
        match admin.group(args.group.as_str()).await {
            Ok(group) => {
                let has = |topic: &String| group.topics.contains(topic);
                if group.total_lag == 0 && args.topics.iter().all(has) {
                    return;
                }
            }
            Err(error) => tracing::info!(%error, "the group cannot be asked yet"),
        }
    }
}

fn tell(summary: &WorkerSummary, context: &Context) {
    let count = |records: u64| show_count(i64::try_from(records).unwrap_or(i64::MAX));
    if summary.conflicts > 0 {
        let records = count(summary.conflicts);
        context.output.note(&format!(
            "{records} records were given to another before they were settled here"
        ));
    }
    if summary.unsettled > 0 {
        let records = count(summary.unsettled);
        context.output.note(&format!(
            "{records} records could not be settled, and come again"
        ));
    }
}

fn failure(connection: &Connection, error: ConsumeError) -> Failure {
    match error {
        ConsumeError::Refused(error) | ConsumeError::GaveUp { last: error, .. } => {
            connection.failure(error)
        }
        error @ (ConsumeError::Left | ConsumeError::Corrupt { .. }) => {
            Failure::new(Exit::Conflict, error.to_string())
        }
    }
}
