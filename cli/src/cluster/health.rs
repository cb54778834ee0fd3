//! `varvelog cluster health`.

use std::time::Duration;

use clap::Args;
use serde_json::json;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use varvelog_proto::v1;

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::group::groups_of_topic;
use crate::output::{Block, View};
use crate::parse;

const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Arguments.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct HealthArgs {
    /// Ask again and again
    #[arg(short, long)]
    watch: bool,
    /// End with 0 as soon as it is healthy
    #[arg(short, long)]
    exit_when_healthy: bool,
    /// How often with --watch or --exit-when-healthy, at least 100ms
    #[arg(long, default_value = "1s", value_parser = parse::duration, value_name = "DURATION")]
    interval: Duration,
}

/// What was found.
#[derive(Debug, Default)]
struct Health {
    /// One sentence each; empty: healthy.
    problems: Vec<String>,
}

pub(crate) async fn run(args: HealthArgs, context: &mut Context) -> Result<(), Failure> {
    if !args.watch && !args.exit_when_healthy {
        let health = match problems(context).await {
            Err(failure) if failure.exit == Exit::Timeout => return Err(failure),
            found => Health::of(found),
        };
        context.output.show(&health_view(&health))?;
        return health.into_result();
    }
    let mut ticks = tokio::time::interval(args.interval.max(INTERVAL_MIN));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            interrupted = tokio::signal::ctrl_c() => {
                interrupted.map_err(|error| Failure::io("Ctrl-C", &error))?;
                return Err(Failure::silent(Exit::Interrupted));
            }
        }
        let health = Health::of(problems(context).await);
        if args.watch || health.problems.is_empty() {
            context.output.show(&health_view(&health))?;
        }
        if args.exit_when_healthy && health.problems.is_empty() {
            return Ok(());
        }
    }
}

async fn problems(context: &Context) -> Result<Vec<String>, Failure> {
    let connection = context.connect().await?;
    let request = connection.request(HealthCheckRequest {
        service: String::new(),
    });
    let mut health = HealthClient::new(connection.transport());
    let answer = connection.answer(health.check(request)).await?;
    if answer.status() != ServingStatus::Serving {
        return Ok(vec![format!(
            "the broker says {}",
            answer.status().as_str_name()
        )]);
    }
    let stalled = |group: &v1::Group| {
        (group.status() == v1::GroupStatus::Stalled).then(|| {
            format!(
                "group {} is stalled with a lag of {}",
                group.name, group.total_lag
            )
        })
    };
    Ok(groups_of_topic(&connection, "")
        .await?
        .iter()
        .filter_map(stalled)
        .collect())
}

impl Health {
    fn of(found: Result<Vec<String>, Failure>) -> Self {
        let problems = found.unwrap_or_else(|failure| vec![failure.message]);
        Self { problems }
    }

    fn into_result(self) -> Result<(), Failure> {
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(Failure::silent(Exit::Unhealthy))
        }
    }
}

fn health_view(health: &Health) -> View {
    let healthy = health.problems.is_empty();
    let word = if healthy { "healthy" } else { "unhealthy" };
    let mut blocks = vec![Block::Text(word.to_owned())];
    blocks.extend(
        health
            .problems
            .iter()
            .map(|problem| Block::Text(format!("- {problem}"))),
    );
    let json = json!({ "healthy": healthy, "problems": health.problems });
    View::one(word, json, blocks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_make_it_unhealthy() {
        let fine = Health::default();
        assert_eq!(health_view(&fine).to_text(str::to_owned), "healthy\n");
        assert_eq!(fine.into_result(), Ok(()));
        let ill = Health {
            problems: vec!["no broker".into()],
        };
        let view = health_view(&ill);
        assert_eq!(view.to_text(str::to_owned), "unhealthy\n\n- no broker\n");
        assert_eq!(
            view.json.to_string(),
            r#"{"healthy":false,"problems":["no broker"]}"#
        );
        assert_eq!(ill.into_result().unwrap_err().exit, Exit::Unhealthy);
    }
}
