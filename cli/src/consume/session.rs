//! One membership: records are handled in the order they come, and settled.

use std::time::Duration;

use tonic::Streaming;
use varvelog_client::retry::BackoffConfig;
use varvelog_proto::v1;

use super::command::{ConsumeArgs, Settle};
use crate::connect::Connection;
use crate::failure::Failure;
use crate::output::{Output, Printed, RecordPrinter};

/// How long nothing must come before the group is asked whether anything is left.
const QUIET_TIME: Duration = Duration::from_millis(200);

/// A member at work.
pub(super) struct Session<'a> {
    args: &'a ConsumeArgs,
    connection: &'a Connection,
    printer: RecordPrinter,
    output: &'a mut Output,
    /// Empty until the first event.
    member_id: String,
    /// Whether an event came since the member joined last.
    joined: bool,
    handled: u64,
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
            joined: false,
            handled: 0,
        }
    }

    /// The member's id, empty if it never was one.
    pub(super) fn finish(self) -> String {
        self.member_id
    }

    /// Works until the limit, the end of the group's work, or the end of the membership. Once it
    /// was a member, it comes back as that after faults that pass.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        let mut delays = BackoffConfig::default().delays(rand::random::<f64>);
        loop {
            self.joined = false;
            let ended = match self.join().await {
                Ok(stream) => self.work(stream).await,
                Err(failure) => Err(failure),
            };
            let Err(failure) = ended else { return Ok(()) };
            if self.member_id.is_empty() || !failure.passes {
                return Err(failure);
            }
            if self.joined {
                delays.reset();
                self.output
                    .note(&format!("{}; coming back", failure.message));
            }
            tokio::time::sleep(delays.next().unwrap_or_default()).await;
        }
    }

    async fn join(&self) -> Result<Streaming<v1::ConsumeResponse>, Failure> {
        let request = self.args.to_request(&self.member_id);
        let mut group = self.connection.group();
        self.connection.answer(group.consume(request)).await
    }

    /// Handles what comes until the limit, the end of the group's work, or the end of the stream.
    async fn work(&mut self, mut stream: Streaming<v1::ConsumeResponse>) -> Result<(), Failure> {
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
            self.joined = true;
            return Ok(());
        }
        let mut last = None;
        for record in &response.records {
            if self.is_full() {
                break;
            }
            let printed = Printed {
                topic: &response.topic,
                partition: response.partition,
                record,
            };
            self.printer.print(printed, self.output)?;
            self.handled += 1;
            last = Some(record.offset);
            if self.args.ack == Settle::Each {
                self.output.flush()?;
                self.settle(&response, last).await?;
            }
        }
        self.output.flush()?;
        if self.args.ack == Settle::Auto {
            let all = last == response.records.last().map(|record| record.offset);
            self.settle(&response, last.filter(|_| !all)).await?;
        }
        Ok(())
    }

    async fn settle(
        &mut self,
        response: &v1::ConsumeResponse,
        up_to_offset: Option<i64>,
    ) -> Result<(), Failure> {
        let ack = v1::AckRequest {
            ack_token: response.ack_token.clone(),
            failures: Vec::new(),
            up_to_offset,
            outputs: Vec::new(),
        };
        let answer = self.ack(ack).await?;
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

    /// Asks until there is an answer: a token stays good through a break and a restart, and
    /// settling twice settles once.
    async fn ack(&mut self, ack: v1::AckRequest) -> Result<v1::AckResponse, Failure> {
        let mut delays = BackoffConfig::default().delays(rand::random::<f64>);
        let mut is_told = false;
        loop {
            let request = self.connection.request(ack.clone());
            let mut group = self.connection.group();
            match self.connection.answer(group.ack(request)).await {
                Err(failure) if failure.passes => {
                    if !std::mem::replace(&mut is_told, true) {
                        let text = format!("{}; settling is tried again", failure.message);
                        self.output.note(&text);
                    }
                    tokio::time::sleep(delays.next().unwrap_or_default()).await;
                }
                answer => return answer,
            }
        }
    }

    /// Nothing is left, or with `--ack none` everything left is held by somebody.
    async fn is_done(&self) -> Result<bool, Failure> {
        let name = self.args.group.clone();
        let request = self.connection.request(v1::GetGroupRequest { name });
        let mut admin = self.connection.group_admin();
        let answer = match self.connection.answer(admin.get_group(request)).await {
            // The stream breaks too, and the member comes back.
            Err(failure) if failure.passes => return Ok(false),
            answer => answer?,
        };
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
