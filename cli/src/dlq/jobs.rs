//! `varvelog dlq jobs`, `job`, `pause`, `resume` and `cancel`.

use std::time::Duration;

use clap::Args;
use varvelog_client::Admin;
use varvelog_proto::v1;

use super::job_views::{job_view, jobs_view};
use crate::connect::Connection;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Progress;

/// Time between two looks at a job that is waited for.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Arguments of `jobs`.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobsArgs {
    /// Only of this dead-letter topic, with .dlq or without
    #[arg(value_name = "QUEUE", default_value = "", hide_default_value = true)]
    queue: String,
}

/// Arguments of `job`.
#[derive(Args, Clone, Debug)]
pub(crate) struct JobArgs {
    /// The job, such as replay-7
    #[arg(value_name = "JOB")]
    id: String,
    /// Wait for its end
    #[arg(short, long)]
    wait: bool,
}

/// Arguments of `pause`, `resume` and `cancel`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ControlArgs {
    /// The job, such as replay-7
    #[arg(value_name = "JOB")]
    id: String,
}

/// What is done to a job.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Control {
    Pause,
    Resume,
    Cancel,
}

pub(crate) async fn list(args: JobsArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let request = v1::ListReplayJobsRequest { queue: args.queue };
    let listed = Admin::new(&connection).replay_jobs(request).await;
    let listed = listed.map_err(|error| connection.failure(error))?;
    let zone = context.output.zone.clone();
    context.output.show(&jobs_view(&listed.jobs, &zone))?;
    Ok(())
}

pub(crate) async fn show(args: JobArgs, context: &mut Context) -> Result<(), Failure> {
    let connection = context.connect().await?;
    if args.wait {
        return wait(&connection, &args.id, context).await;
    }
    let job = Admin::new(&connection).replay_job(&args.id).await;
    let job = job.map_err(|error| connection.failure(error))?;
    let zone = context.output.zone.clone();
    context.output.show(&job_view(&job, &zone))?;
    Ok(())
}

pub(crate) async fn control(
    args: ControlArgs,
    control: Control,
    context: &mut Context,
) -> Result<(), Failure> {
    let connection = context.connect().await?;
    let admin = Admin::new(&connection);
    let job = match control {
        Control::Pause => admin.pause_replay_job(&args.id).await,
        Control::Resume => admin.resume_replay_job(&args.id).await,
        Control::Cancel => admin.cancel_replay_job(&args.id).await,
    };
    let job = job.map_err(|error| connection.failure(error))?;
    let zone = context.output.zone.clone();
    context.output.show(&job_view(&job, &zone))?;
    Ok(())
}

/// Shows how far a job is until it ends, and then the job. Ctrl-C ends the waiting, not the job.
pub(super) async fn wait(
    connection: &Connection,
    id: &str,
    context: &mut Context,
) -> Result<(), Failure> {
    let admin = Admin::new(connection);
    let mut shown = 0;
    let mut progress: Option<Progress> = None;
    let job = loop {
        let job = admin.replay_job(id).await;
        let job = job.map_err(|error| connection.failure(error))?;
        let total = u64::try_from(job.matched).ok();
        let quiet = context.output.quiet;
        let bar = progress.get_or_insert_with(|| Progress::new("replayed", total, quiet));
        let done = u64::try_from(job.replayed.saturating_add(job.failed)).unwrap_or(0);
        bar.add(done.saturating_sub(shown));
        shown = done;
        if job.end_time.is_some() {
            bar.finish();
            break job;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.map_err(|error| Failure::io("Ctrl-C", &error))?;
                bar.finish();
                return Err(Failure::new(Exit::Interrupted, "not waited for: the job goes on")
                    .hint(format!("varvelog dlq job {id} --wait, or varvelog dlq cancel {id}")));
            }
        }
    };
    let zone = context.output.zone.clone();
    context.output.show(&job_view(&job, &zone))?;
    verdict(&job)
}

/// A job that did not do all it should is a failure, so that a script does not go on.
fn verdict(job: &v1::ReplayJob) -> Result<(), Failure> {
    match job.state() {
        v1::ReplayState::Succeeded if job.failed > 0 => {
            let why = format!(
                "{} entries could not be appended: {}",
                job.failed, job.error
            );
            Err(Failure::new(Exit::Partly, why))
        }
        v1::ReplayState::Failed => {
            let why = format!("{} stopped by itself: {}", job.id, job.error);
            Err(Failure::new(Exit::Failed, why))
        }
        v1::ReplayState::Cancelled => Err(Failure::new(
            Exit::Failed,
            format!("{} was cancelled", job.id),
        )),
        v1::ReplayState::Succeeded
        | v1::ReplayState::Running
        | v1::ReplayState::Paused
        | v1::ReplayState::Unspecified => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_tells_how_a_job_ended() {
        let job = |state: v1::ReplayState, failed| v1::ReplayJob {
            state: state.into(),
            failed,
            ..v1::ReplayJob::default()
        };
        let exit = |job: &v1::ReplayJob| verdict(job).err().map(|failure| failure.exit);
        assert_eq!(exit(&job(v1::ReplayState::Succeeded, 0)), None);
        assert_eq!(
            exit(&job(v1::ReplayState::Succeeded, 1)),
            Some(Exit::Partly)
        );
        assert_eq!(exit(&job(v1::ReplayState::Failed, 0)), Some(Exit::Failed));
        assert_eq!(
            exit(&job(v1::ReplayState::Cancelled, 0)),
            Some(Exit::Failed)
        );
    }
}
