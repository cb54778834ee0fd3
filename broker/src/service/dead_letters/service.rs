//! The calls.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use varvelog_proto::v1;

use super::{audit, discard, jobs, list, queues, replay, stats};
use crate::core::replay_command::JobControl;
use crate::service::context::Context;
use crate::service::generated::dead_letter_service_server::DeadLetterService;

/// The service.
#[derive(Debug, Clone)]
pub(in crate::service) struct DeadLetters {
    context: Arc<Context>,
}

impl DeadLetters {
    pub(in crate::service) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}

#[tonic::async_trait]
impl DeadLetterService for DeadLetters {
    async fn list_dead_letter_queues(
        &self,
        request: Request<v1::ListDeadLetterQueuesRequest>,
    ) -> Result<Response<v1::ListDeadLetterQueuesResponse>, Status> {
        let listed = queues::list(&self.context, request.into_inner()).await?;
        Ok(Response::new(listed))
    }

    async fn get_dead_letter_stats(
        &self,
        request: Request<v1::GetDeadLetterStatsRequest>,
    ) -> Result<Response<v1::GetDeadLetterStatsResponse>, Status> {
        let stats = stats::get(&self.context, request.into_inner()).await?;
        Ok(Response::new(stats))
    }

    async fn list_dead_letters(
        &self,
        request: Request<v1::ListDeadLettersRequest>,
    ) -> Result<Response<v1::ListDeadLettersResponse>, Status> {
        let listed = list::list(&self.context, request.into_inner()).await?;
        Ok(Response::new(listed))
    }

    async fn replay_dead_letters(
        &self,
        request: Request<v1::ReplayDeadLettersRequest>,
    ) -> Result<Response<v1::ReplayDeadLettersResponse>, Status> {
        let answer = replay::replay(&self.context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn discard_dead_letters(
        &self,
        request: Request<v1::DiscardDeadLettersRequest>,
    ) -> Result<Response<v1::DiscardDeadLettersResponse>, Status> {
        let answer = discard::discard(&self.context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn get_replay_job(
        &self,
        request: Request<v1::GetReplayJobRequest>,
    ) -> Result<Response<v1::GetReplayJobResponse>, Status> {
        let job = jobs::get(&self.context, &request.into_inner().id).await?;
        Ok(Response::new(v1::GetReplayJobResponse { job: Some(job) }))
    }

    async fn list_replay_jobs(
        &self,
        request: Request<v1::ListReplayJobsRequest>,
    ) -> Result<Response<v1::ListReplayJobsResponse>, Status> {
        let answer = jobs::list(&self.context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }

    async fn pause_replay_job(
        &self,
        request: Request<v1::PauseReplayJobRequest>,
    ) -> Result<Response<v1::PauseReplayJobResponse>, Status> {
        let id = request.into_inner().id;
        let job = jobs::control(&self.context, &id, JobControl::Pause).await?;
        Ok(Response::new(v1::PauseReplayJobResponse { job: Some(job) }))
    }

    async fn resume_replay_job(
        &self,
        request: Request<v1::ResumeReplayJobRequest>,
    ) -> Result<Response<v1::ResumeReplayJobResponse>, Status> {
        let id = request.into_inner().id;
        let job = jobs::control(&self.context, &id, JobControl::Resume).await?;
        Ok(Response::new(v1::ResumeReplayJobResponse {
            job: Some(job),
        }))
    }

    async fn cancel_replay_job(
        &self,
        request: Request<v1::CancelReplayJobRequest>,
    ) -> Result<Response<v1::CancelReplayJobResponse>, Status> {
        let id = request.into_inner().id;
        let job = jobs::control(&self.context, &id, JobControl::Cancel).await?;
        Ok(Response::new(v1::CancelReplayJobResponse {
            job: Some(job),
        }))
    }

    async fn list_audit(
        &self,
        request: Request<v1::ListAuditRequest>,
    ) -> Result<Response<v1::ListAuditResponse>, Status> {
        let answer = audit::list(&self.context, request.into_inner()).await?;
        Ok(Response::new(answer))
    }
}
