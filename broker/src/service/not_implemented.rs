//! Services of the contract that are not in this release: each call says which feature is missing.

use tonic::{Request, Response, Status};
use varvelog_proto::v1;

use super::generated::alert_service_server::AlertService;
use super::generated::dead_letter_service_server::DeadLetterService;
use super::status::{CallFailure, EdgeRefusal};

/// The answer of a call that is not in this release.
pub(super) fn not_implemented(feature: &'static str) -> Status {
    CallFailure::from(EdgeRefusal::not_implemented(feature)).into()
}

/// `DeadLetterService`.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeadLetters;

/// `AlertService`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alerts;

macro_rules! missing {
    ($trait:ident for $service:ident: $feature:literal;
     $($call:ident($request:ident) -> $response:ident),+ $(,)?) => {
        #[tonic::async_trait]
        impl $trait for $service {
            $(async fn $call(
                &self,
                _request: Request<v1::$request>,
            ) -> Result<Response<v1::$response>, Status> {
                Err(not_implemented($feature))
            })+
        }
    };
}

missing! {
    DeadLetterService for DeadLetters: "dead_letters";
    list_dead_letter_queues(ListDeadLetterQueuesRequest) -> ListDeadLetterQueuesResponse,
    get_dead_letter_stats(GetDeadLetterStatsRequest) -> GetDeadLetterStatsResponse,
    list_dead_letters(ListDeadLettersRequest) -> ListDeadLettersResponse,
    replay_dead_letters(ReplayDeadLettersRequest) -> ReplayDeadLettersResponse,
    discard_dead_letters(DiscardDeadLettersRequest) -> DiscardDeadLettersResponse,
    get_replay_job(GetReplayJobRequest) -> GetReplayJobResponse,
    list_replay_jobs(ListReplayJobsRequest) -> ListReplayJobsResponse,
    pause_replay_job(PauseReplayJobRequest) -> PauseReplayJobResponse,
    resume_replay_job(ResumeReplayJobRequest) -> ResumeReplayJobResponse,
    cancel_replay_job(CancelReplayJobRequest) -> CancelReplayJobResponse,
    list_audit(ListAuditRequest) -> ListAuditResponse,
}

missing! {
    AlertService for Alerts: "alerts";
    list_alerts(ListAlertsRequest) -> ListAlertsResponse,
    set_alert(SetAlertRequest) -> SetAlertResponse,
    delete_alert(DeleteAlertRequest) -> DeleteAlertResponse,
    test_alert(TestAlertRequest) -> TestAlertResponse,
}
