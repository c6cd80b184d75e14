#include "collectives/hierarchical/hierarchy_levels.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

// Longer than the news of a failure takes to reach all ranks.
absl::Duration GraceOf(absl::Duration timeout) { return std::min(timeout / 2, absl::Seconds(5)); }

}  // namespace

HierarchyLevels::HierarchyLevels(std::unique_ptr<TcpBackend> network,
                                 std::unique_ptr<CommunicatorBackend> host, const Hosts& hosts)
    : hosts_(hosts), network_(std::move(network)), host_(std::move(host)) {
  network_->links().Watch([this](const absl::Status& status) { host_->Abort(status); });
}

HierarchyLevels::~HierarchyLevels() { network_->links().Watch(nullptr); }

absl::Status HierarchyLevels::Arrive(const Operation& operation, absl::Duration timeout) {
  host_->SetTimeout(timeout);
  GEMINID_RETURN_IF_ERROR(Inside([&](auto& host) { return host.DoBarrier(operation); }));
  const absl::Duration grace = GraceOf(timeout);
  Allow(timeout + grace);
  host_->SetTimeout(timeout + 2 * grace);
  return absl::OkStatus();
}

void HierarchyLevels::Allow(absl::Duration timeout) {
  timeout_between_ = timeout;
  network_->SetTimeout(timeout);
  host_->SetTimeout(timeout);
}

absl::Status HierarchyLevels::Inside(OnHost work) {
  const absl::Status status = work(*host_);
  return status.ok() ? status : Verdict(status);
}

absl::Status HierarchyLevels::Between(const ExchangeMessages& messages,
                                      const OverlappedWork& meanwhile) {
  GEMINID_RETURN_IF_ERROR(network_->links().Run(messages, timeout_between_, meanwhile));
  network_->Count(messages);
  return absl::OkStatus();
}

absl::Status HierarchyLevels::Verdict(const absl::Status& status) {
  GEMINID_RETURN_IF_ERROR(network_->links().failure());
  return network_->links().Fail(status);
}

}  // namespace geminid::collectives
