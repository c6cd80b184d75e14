#include "daemon/service/watch/observer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "daemon/os/event.h"
#include "daemon/os/log.h"
#include "daemon/os/priority.h"

namespace geminid::service {

absl::StatusOr<std::unique_ptr<Observer>> Observer::Start(const ObserverOptions& options,
                                                          std::unique_ptr<Monitor> monitor) {
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<os::EventLoop> loop, os::EventLoop::Create());
  std::unique_ptr<Observer> observer(new Observer(std::move(monitor), std::move(loop)));
  GEMINID_RETURN_IF_ERROR(observer->Listen(options));
  GEMINID_ASSIGN_OR_RETURN(observer->thread_,
                           base::StartThread([raw = observer.get()] { raw->Run(); }));
  return observer;
}

absl::Status Observer::Listen(const ObserverOptions& options) {
  const auto handle = [this](const std::string& path) { return monitor_->Handle(path); };
  if (!options.socket.empty()) {
    GEMINID_ASSIGN_OR_RETURN(
        std::unique_ptr<metrics::HttpServer> server,
        metrics::HttpServer::CreateUnix(options.socket, options.socket_mode, loop_.get(), handle));
    servers_.push_back(std::move(server));
  }
  if (options.host.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<metrics::HttpServer>> server =
      metrics::HttpServer::Create(options.host, options.port, loop_.get(), handle);
  if (!server.ok() && options.port_required) return server.status();
  if (!server.ok()) {
    os::Log(os::LogLevel::kWarning, "no metrics port",
            {{"error", std::string(server.status().message())},
             {"advice", absl::StrCat("scrape the socket ", options.socket,
                                     ", or give another port with --metrics-listen")}});
    return absl::OkStatus();
  }
  address_ = (*server)->address();
  servers_.push_back(*std::move(server));
  return absl::OkStatus();
}

Observer::~Observer() {
  if (!thread_.joinable()) return;
  loop_->Post([this] { stopping_ = true; });
  thread_.join();
}

void Observer::Run() {
  os::GiveWay();
  while (!stopping_) {
    loop_->RunUntil(NextDeadline());
    const int64_t now = os::MonotonicNanoseconds();
    for (const auto& server : servers_) server->Expire(now);
    monitor_->CheckIfDue(now);
  }
}

int64_t Observer::NextDeadline() const {
  int64_t next = monitor_->next_check();
  for (const auto& server : servers_) next = std::min(next, server->NextDeadline().value_or(next));
  return next;
}

}  // namespace geminid::service
