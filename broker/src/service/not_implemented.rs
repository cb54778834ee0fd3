//! Services of the contract that are not in this release: each call says which feature is missing.

use tonic::{Request, Response, Status};
use varvelog_proto::v1;

use super::generated::alert_service_server::AlertService;
use super::status::{CallFailure, EdgeRefusal};

/// The answer of a call that is not in this release.
pub(super) fn not_implemented(feature: &'static str) -> Status {
    CallFailure::from(EdgeRefusal::not_implemented(feature)).into()
}

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
    AlertService for Alerts: "alerts";
    list_alerts(ListAlertsRequest) -> ListAlertsResponse,
    set_alert(SetAlertRequest) -> SetAlertResponse,
    delete_alert(DeleteAlertRequest) -> DeleteAlertResponse,
    test_alert(TestAlertRequest) -> TestAlertResponse,
}
