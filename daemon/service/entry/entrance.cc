#include "daemon/service/entry/entrance.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/start_thread.h"
#include "base/status_macros.h"
#include "daemon/os/event.h"
#include "daemon/os/priority.h"

namespace geminid::service {
namespace {

std::optional<int64_t> Earlier(std::optional<int64_t> a, std::optional<int64_t> b) {
  if (!a.has_value() || !b.has_value()) return a.has_value() ? a : b;
  return std::min(*a, *b);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Entrance>> Entrance::Create(Vitals* vitals) {
  GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<os::EventLoop> loop, os::EventLoop::Create());
  loop->OnAwake(
      [vitals] { vitals->entrance_turn_since_nanoseconds.store(os::MonotonicNanoseconds()); });
  return std::unique_ptr<Entrance>(new Entrance(std::move(loop), vitals));
}

Entrance::~Entrance() { Stop(); }

absl::Status Entrance::Start(AttachServer* attach, RpcServer* rpc) {
  GEMINID_ASSIGN_OR_RETURN(thread_, base::StartThread([this, attach, rpc] { Run(attach, rpc); }));
  return absl::OkStatus();
}

void Entrance::Stop() {
  if (!thread_.joinable()) return;
  loop_->Post([this] { stopping_ = true; });
  thread_.join();
}

void Entrance::Run(AttachServer* attach, RpcServer* rpc) {
  os::GiveWay();
  while (!stopping_) {
    loop_->RunUntil(Earlier(attach->NextDeadline(), rpc->NextDeadline()));
    const int64_t now = os::MonotonicNanoseconds();
    attach->Expire(now);
    rpc->Expire(now);
    vitals_->entrance_turn_since_nanoseconds.store(0);
  }
}

}  // namespace geminid::service
