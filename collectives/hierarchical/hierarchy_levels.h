// The two groups of a hierarchical communicator, which fail together.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHY_LEVELS_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHY_LEVELS_H_

#include <functional>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/communicator_backend.h"
#include "collectives/hierarchical/hosts.h"
#include "collectives/tcp/tcp_backend.h"

namespace geminid::collectives {

// A failure of either group fails the other one, on all hosts, with the same message: the one that
// the network's coordinator received first.
class HierarchyLevels {
 public:
  // `network` has all ranks, `host` those of this rank's host.
  HierarchyLevels(std::unique_ptr<TcpBackend> network, std::unique_ptr<CommunicatorBackend> host,
                  const Hosts& hosts);
  ~HierarchyLevels();
  HierarchyLevels(const HierarchyLevels&) = delete;
  HierarchyLevels& operator=(const HierarchyLevels&) = delete;

  const Hosts& hosts() const { return hosts_; }
  TcpBackend& network() const { return *network_; }
  int host() const { return hosts_.HostOf(network_->Rank()); }
  int local() const { return hosts_.LocalOf(network_->Rank()); }
  // The number of ranks on this host.
  int size() const { return hosts_.SizeOf(host()); }
  // Whether every host has a rank with this rank's local number.
  bool has_counterparts() const { return local() < hosts_.ranks_each; }
  // The rank on another host with this rank's local number.
  int Counterpart(int host) const { return hosts_.RankAt(host, local()); }

  // Must begin every collective: returns when all ranks of this host have entered it, and reports
  // if they disagree.
  absl::Status Arrive(const Operation& operation, absl::Duration timeout);
  // Begins messages, for which no other rank of the host needs to arrive.
  void Allow(absl::Duration timeout);

  // Runs `work` among the ranks of this host.
  using OnHost = absl::FunctionRef<absl::Status(CommunicatorBackend& host)>;
  absl::Status Inside(OnHost work);
  // Exchanges messages with ranks of other hosts, and runs `meanwhile` while the bytes travel.
  // Peers may be waiting for it.
  using OverlappedWork = std::function<absl::Status()>;
  absl::Status Between(const ExchangeMessages& messages, const OverlappedWork& meanwhile = nullptr);

 private:
  absl::Status Verdict(const absl::Status& status);

  const Hosts hosts_;
  const std::unique_ptr<TcpBackend> network_;
  const std::unique_ptr<CommunicatorBackend> host_;
  // A rank that waits for an absent rank must time out first and name it; ranks that wait for the
  // waiting rank time out later.
  absl::Duration timeout_between_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_HIERARCHY_LEVELS_H_
