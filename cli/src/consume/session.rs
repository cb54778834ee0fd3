//! One membership: records are handled in the order they come, and settled.

use std::time::Duration;

use tonic::Streaming;
use varvelog_proto::v1;

use super::command::{ConsumeArgs, EXEC_HOLD, Settle};
use super::exec::{self, Handled};
use crate::connect::Connection;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Output, Printed, RecordPrinter, complain};

/// How long nothing must come before the group is asked whether anything is left.
const QUIET_TIME: Duration = Duration::from_millis(200);

/// The reason of a broker that knows no retries yet.
const NOT_IMPLEMENTED: &str = "NOT_IMPLEMENTED";

/// A member at work.
pub(super) struct Session<'a> {
    args: &'a ConsumeArgs,
    connection: &'a Connection,
    printer: RecordPrinter,
    output: &'a mut Output,
    /// Empty until the first event.
    member_id: String,
    handled: u64,
    failed: u64,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        args: &'a ConsumeArgs,
        connection: &'a Connection,
        printer: RecordPrinter,
        output: &'a mut Output,
    ) -> Self {
        let member_id = String::new();
        Self {
            args,
            connection,
            printer,
            output,
            member_id,
            handled: 0,
            failed: 0,
        }
    }

    /// The member's id, empty if it never was one, and how many records failed.
    pub(super) fn finish(self) -> (String, u64) {
        (self.member_id, self.failed)
    }

    /// Handles what comes until the limit, the end of the group's work, or the end of the stream.
    pub(super) async fn work(
        &mut self,
        mut stream: Streaming<v1::ConsumeResponse>,
    ) -> Result<(), Failure> {
        while !self.is_full() {
            let message = if self.args.exit && !self.member_id.is_empty() {
                match tokio::time::timeout(QUIET_TIME, stream.message()).await {
                    Ok(message) => message,
                    Err(_) if self.is_done().await? => return Ok(()),
                    Err(_) => continue,
                }
            } else {
                stream.message().await
            };
            match message.map_err(|status| self.connection.failure(status))? {
                Some(response) => self.take(response).await?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    async fn take(&mut self, response: v1::ConsumeResponse) -> Result<(), Failure> {
        if let Some(event) = response.event {
            tracing::info!(
                member_id = event.member_id,
                generation = event.generation,
                "joined"
            );
            self.member_id = event.member_id;
            return Ok(());
        }
        let mut failures = Vec::new();
        let mut last = None;
        for record in &response.records {
            if self.is_full() {
                break;
            }
            let topic = response.topic.as_str();
            let printed = Printed {
                topic,
                partition: response.partition,
                record,
            };
            let failure = self.handle(printed, &response.ack_token).await?;
            self.handled += 1;
            self.failed += u64::from(failure.is_some());
            last = Some(record.offset);
            failures.extend(failure);
            if self.args.ack == Settle::Each {
                self.output.flush()?;
                self.settle(&response, last, std::mem::take(&mut failures))
                    .await?;
            }
        }
        self.output.flush()?;
        if self.args.ack == Settle::Auto {
            let all = last == response.records.last().map(|record| record.offset);
            self.settle(&response, last.filter(|_| !all), failures)
                .await?;
        }
        Ok(())
    }

    async fn handle(
        &mut self,
        printed: Printed<'_>,
        ack_token: &bytes::Bytes,
    ) -> Result<Option<v1::Failure>, Failure> {
        let Some(command) = &self.args.exec else {
            self.printer.print(printed, self.output)?;
            return Ok(None);
        };
        let handling = exec::handle(command, printed);
        tokio::pin!(handling);
        loop {
            tokio::select! {
                handled = &mut handling => {
                    let Handled { failure, errors } = handled?;
                    if !errors.is_empty() {
                        complain(errors.trim_end());
                    }
                    return Ok(failure);
                }
                () = tokio::time::sleep(EXEC_HOLD / 3) => self.extend(ack_token).await,
            }
        }
    }

    /// Keeps a record while its command runs. If it is lost all the same, settling it says so.
    async fn extend(&self, ack_token: &bytes::Bytes) {
        let request = self.connection.request(v1::ExtendAckRequest {
            ack_token: ack_token.clone(),
            ack_timeout: prost_types::Duration::try_from(EXEC_HOLD).ok(),
        });
        let mut group = self.connection.group();
        if let Err(failure) = self.connection.answer(group.extend_ack(request)).await {
            tracing::info!(%failure, "could not hold the record for longer");
        }
    }

    async fn settle(
        &mut self,
        response: &v1::ConsumeResponse,
        up_to_offset: Option<i64>,
        failures: Vec<v1::Failure>,
    ) -> Result<(), Failure> {
        let has_failures = !failures.is_empty();
        let request = self.connection.request(v1::AckRequest {
            ack_token: response.ack_token.clone(),
            failures,
            up_to_offset,
            outputs: Vec::new(),
        });
        let mut group = self.connection.group();
        let answer = match self.connection.answer(group.ack(request)).await {
            Err(error) if has_failures && error.reason.as_deref() == Some(NOT_IMPLEMENTED) => {
                return Err(unsettled(response));
            }
            answer => answer?,
        };
        if !answer.conflicts.is_empty() {
            self.output.note(&format!(
                "{} records of {}/{} were given to another before they were settled here",
                answer.conflicts.len(),
                response.topic,
                response.partition
            ));
        }
        Ok(())
    }

    /// Nothing is left, or with `--ack none` everything left is held by somebody.
    async fn is_done(&self) -> Result<bool, Failure> {
        let name = self.args.group.clone();
        let request = self.connection.request(v1::GetGroupRequest { name });
        let mut admin = self.connection.group_admin();
        let answer = self.connection.answer(admin.get_group(request)).await?;
        let group = answer.group.unwrap_or_default();
        let held = match self.args.ack {
            Settle::None => group.lags.iter().map(|lag| lag.in_flight).sum(),
            Settle::Auto | Settle::Each => 0,
        };
        Ok(group.total_lag <= held)
    }

    fn is_full(&self) -> bool {
        self.args.limit.is_some_and(|limit| self.handled >= limit)
    }
}

/// A record failed and the broker cannot take that: the work ends here, so that the order of the
/// partition stands, and the record comes again.
fn unsettled(response: &v1::ConsumeResponse) -> Failure {
    let message = format!(
        "a record of {}/{} failed, and this broker takes no failures yet: it was not settled",
        response.topic, response.partition
    );
    Failure::new(Exit::Partly, message).hint("the same again; it begins with that record")
}
