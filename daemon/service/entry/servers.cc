#include "daemon/service/entry/servers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "daemon/os/event.h"
#include "daemon/service/entry/reloader.h"
#include "daemon/service/entry/version.h"

namespace geminid::service {
namespace {

constexpr absl::Duration kShutdownPatience = absl::Milliseconds(100);

}  // namespace

absl::Status Servers::OpenMetrics(const config::Settings& settings, bool is_private,
                                  SocketFiles* files) {
  // A private daemon serves metrics only if its settings ask for them.
  if (is_private && settings.metrics_built_in) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(files->AddMetricsSocket());
  GEMINID_ASSIGN_OR_RETURN(
      observer_, Observer::Start({.host = settings.metrics_host,
                                  .port = settings.metrics_port,
                                  .port_required = !settings.metrics_built_in,
                                  .socket = files->metrics_socket(),
                                  .socket_mode = settings.socket_mode},
                                 std::make_unique<Monitor>(of_.hub, of_.vitals, kVersion)));
  return absl::OkStatus();
}

absl::Status Servers::OpenEntrance(const config::Settings& settings, const SocketFiles& files,
                                   DaemonOptions* options) {
  DaemonFacts facts;
  facts.version = kVersion;
  facts.socket = files.socket();
  facts.metrics_address = metrics_address();
  facts.metrics_socket = files.metrics_socket();
  facts.start_time_seconds = WallSeconds();
  facts.start_nanoseconds = os::MonotonicNanoseconds();
  facts.vitals = of_.vitals;
  GEMINID_ASSIGN_OR_RETURN(entrance_, Entrance::Create(of_.vitals));
  const auto on_detached = [of = of_](shm::SessionId id) {
    of.loop->Post([of, id] { of.sessions->Remove(id); });
  };
  Tenancy* const tenancy = of_.tenancy;
  GEMINID_ASSIGN_OR_RETURN(
      rpc_,
      RpcServer::Start(of_.in_force, facts, std::move(options->control_listener), entrance_->loop(),
                       of_.hub, &tenancy->log, &tenancy->clients, on_detached));
  const auto on_attached = [of = of_](const SessionPtr& session) {
    of.loop->Post([of, session] { of.sessions->Add(session); });
  };
  GEMINID_ASSIGN_OR_RETURN(
      attach_,
      AttachServer::Create(absl::StrCat(files.socket(), shm::kAttachSuffix), settings.socket_mode,
                           std::move(options->attach_listener), entrance_->loop(), of_.hub,
                           &tenancy->log, &tenancy->clients, on_attached));
  for (const char* suffix : {"", shm::kAttachSuffix}) {
    of_.vitals->sockets.Add(absl::StrCat(files.socket(), suffix));
  }
  return entrance_->Start(attach_.get(), rpc_.get());
}

bool Servers::Stop() {
  if (entrance_ != nullptr) entrance_->Stop();
  attach_.reset();
  bool calls_ended = true;
  if (rpc_ != nullptr) {
    rpc_->Drain();
    calls_ended = rpc_->Shutdown(kShutdownPatience);
  }
  observer_.reset();
  return calls_ended;
}

}  // namespace geminid::service
