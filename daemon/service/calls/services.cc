#include "daemon/service/calls/services.h"

namespace geminid::service {
namespace {

JobSharingOptions SharingOf(const config::Settings& settings) {
  return {
      .interval = settings.sharing_interval,
      .ranks = settings.sharing_ranks,
      .queue_ageing = core::Duration::Nanoseconds(absl::ToInt64Nanoseconds(settings.queue_ageing))};
}

}  // namespace

Services::Services(const SettingsInForce* settings, const DaemonFacts& facts, SessionHub* hub,
                   TenantLog* log, const std::function<void(shm::SessionId)>& on_detached)
    : session_(hub, log, on_detached),
      chunk_(hub),
      plan_(hub),
      memory_(hub),
      admin_(hub, facts),
      config_(settings),
      job_(hub, log, SharingOf(settings->Get()), &facts.vitals->jobs, on_detached) {}

void Services::AddTo(std::vector<RpcMethod>* methods) {
  session_.AddTo(methods);
  chunk_.AddTo(methods);
  plan_.AddTo(methods);
  memory_.AddTo(methods);
  admin_.AddTo(methods);
  config_.AddTo(methods);
  job_.AddTo(methods);
}

}  // namespace geminid::service
