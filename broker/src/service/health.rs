//! Health checks of gRPC: every service is as healthy as the edge.

use std::sync::Arc;

use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::edge::{Phase, PhaseWatch};
use super::generated::health::health_server::Health;

/// The service.
#[derive(Debug, Clone)]
pub(super) struct HealthChecks {
    /// Names of all services, without the empty one that means them all.
    services: Arc<[&'static str]>,
    phase: PhaseWatch,
}

impl HealthChecks {
    pub(super) fn new(services: &[&'static str], phase: PhaseWatch) -> Self {
        Self {
            services: services.into(),
            phase,
        }
    }

    fn is_known(&self, service: &str) -> bool {
        service.is_empty() || self.services.contains(&service)
    }
}

fn answer(phase: Phase) -> HealthCheckResponse {
    let status = match phase {
        Phase::Serving => ServingStatus::Serving,
        Phase::Starting | Phase::Draining | Phase::Over => ServingStatus::NotServing,
    };
    HealthCheckResponse {
        status: status.into(),
    }
}

#[tonic::async_trait]
impl Health for HealthChecks {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if self.is_known(&request.get_ref().service) {
            return Ok(Response::new(answer(self.phase.now())));
        }
        Err(Status::not_found("there is no such service"))
    }

    /// The state now and each time it changes; the last one is that the broker stops.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<BoxStream<HealthCheckResponse>>, Status> {
        if !self.is_known(&request.get_ref().service) {
            return Err(Status::not_found("there is no such service"));
        }
        let watch = self.phase.clone();
        let states = futures_util::stream::unfold(None, move |told: Option<Phase>| {
            let watch = watch.clone();
            async move {
                let next = match told {
                    None => watch.now(),
                    Some(Phase::Starting) => {
                        watch.reached(Phase::Serving).await;
                        watch.now()
                    }
                    Some(Phase::Serving) => {
                        watch.reached(Phase::Draining).await;
                        Phase::Draining
                    }
                    Some(Phase::Draining | Phase::Over) => return None,
                };
                Some((Ok(answer(next)), Some(next)))
            }
        });
        Ok(Response::new(Box::pin(states)))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::super::edge::PhaseSender;
    use super::*;

    fn of(service: &str) -> Request<HealthCheckRequest> {
        Request::new(HealthCheckRequest {
            service: service.to_owned(),
        })
    }

    #[tokio::test]
    async fn a_watcher_is_told_of_each_state_and_the_stop_is_the_last() {
        let (sender, watch) = PhaseSender::new(Phase::Starting);
        let checks = HealthChecks::new(&["a.B"], watch);
        let mut states = checks.watch(of("a.B")).await.unwrap().into_inner();
        let mut next = async || states.next().await.map(|state| state.unwrap().status);
        assert_eq!(next().await, Some(2));
        sender.advance(Phase::Serving);
        assert_eq!(next().await, Some(1));
        assert_eq!(checks.check(of("")).await.unwrap().into_inner().status, 1);
        sender.advance(Phase::Draining);
        assert_eq!(next().await, Some(2));
        assert_eq!(next().await, None);
    }

    #[tokio::test]
    async fn a_service_that_is_not_there_is_not_found() {
        let (_sender, watch) = PhaseSender::new(Phase::Serving);
        let checks = HealthChecks::new(&["a.B"], watch);
        let refused = checks.check(of("a.C")).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::NotFound);
    }
}
