//! Dead letters.

use varvelog_proto::v1;

use super::Admin;
use crate::connection::answer;
use crate::error::CallError;

impl Admin {
    /// One page of dead-letter topics, by name.
    pub async fn dead_letter_queues_page(
        &self,
        page: v1::ListDeadLetterQueuesRequest,
    ) -> Result<v1::ListDeadLetterQueuesResponse, CallError> {
        answer(
            self.connection
                .dead_letters()
                .list_dead_letter_queues(self.connection.request(page))
                .await,
        )
    }

    /// What is in a dead-letter topic by cause, and how it came and went.
    pub async fn dead_letter_stats(
        &self,
        stats: v1::GetDeadLetterStatsRequest,
    ) -> Result<v1::GetDeadLetterStatsResponse, CallError> {
        answer(
            self.connection
                .dead_letters()
                .get_dead_letter_stats(self.connection.request(stats))
                .await,
        )
    }

    /// One page of dead letters. It may be shorter than asked for though more follow.
    pub async fn dead_letters_page(
        &self,
        page: v1::ListDeadLettersRequest,
    ) -> Result<v1::ListDeadLettersResponse, CallError> {
        answer(
            self.connection
                .dead_letters()
                .list_dead_letters(self.connection.request(page))
                .await,
        )
    }

    /// Gives dead letters out again: starts a job, or with `validate_only` counts what it would
    /// replay.
    pub async fn replay_dead_letters(
        &self,
        replay: v1::ReplayDeadLettersRequest,
    ) -> Result<v1::ReplayDeadLettersResponse, CallError> {
        answer(
            self.connection
                .dead_letters()
                .replay_dead_letters(self.connection.request(replay))
                .await,
        )
    }

    /// Drops dead letters for good: first counted with `validate_only`, then by the plan.
    pub async fn discard_dead_letters(
        &self,
        discard: v1::DiscardDeadLettersRequest,
    ) -> Result<v1::DiscardDeadLettersResponse, CallError> {
        answer(
            self.connection
                .dead_letters()
                .discard_dead_letters(self.connection.request(discard))
                .await,
        )
    }

    /// Replay jobs of the last 30 days, newest first.
    pub async fn replay_jobs(
        &self,
        wanted: v1::ListReplayJobsRequest,
    ) -> Result<v1::ListReplayJobsResponse, CallError> {
        answer(
            self.connection
                .dead_letters()
                .list_replay_jobs(self.connection.request(wanted))
                .await,
        )
    }

    /// One page of who did what to dead letters, newest first.
    pub async fn audit_page(
        &self,
        page: v1::ListAuditRequest,
    ) -> Result<v1::ListAuditResponse, CallError> {
        answer(
            self.connection
                .dead_letters()
                .list_audit(self.connection.request(page))
                .await,
        )
    }

    /// A replay job.
    pub async fn replay_job(&self, id: &str) -> Result<v1::ReplayJob, CallError> {
        let request = v1::GetReplayJobRequest { id: id.to_owned() };
        let done = answer(
            self.connection
                .dead_letters()
                .get_replay_job(self.connection.request(request))
                .await,
        )?;
        Ok(done.job.unwrap_or_default())
    }

    /// Holds a replay job; it keeps what it has claimed.
    pub async fn pause_replay_job(&self, id: &str) -> Result<v1::ReplayJob, CallError> {
        let request = v1::PauseReplayJobRequest { id: id.to_owned() };
        let done = answer(
            self.connection
                .dead_letters()
                .pause_replay_job(self.connection.request(request))
                .await,
        )?;
        Ok(done.job.unwrap_or_default())
    }

    /// Lets a paused replay job go on.
    pub async fn resume_replay_job(&self, id: &str) -> Result<v1::ReplayJob, CallError> {
        let request = v1::ResumeReplayJobRequest { id: id.to_owned() };
        let done = answer(
            self.connection
                .dead_letters()
                .resume_replay_job(self.connection.request(request))
                .await,
        )?;
        Ok(done.job.unwrap_or_default())
    }

    /// Ends a replay job; what it has not replayed is released.
    pub async fn cancel_replay_job(&self, id: &str) -> Result<v1::ReplayJob, CallError> {
        let request = v1::CancelReplayJobRequest { id: id.to_owned() };
        let done = answer(
            self.connection
                .dead_letters()
                .cancel_replay_job(self.connection.request(request))
                .await,
        )?;
        Ok(done.job.unwrap_or_default())
    }
}
