// The two groups that ranks on several hosts are made of, failing as one.
#ifndef GEMINID_COLLECTIVES_HIERARCHICAL_LAYERS_H_
#define GEMINID_COLLECTIVES_HIERARCHICAL_LAYERS_H_

#include <functional>
#include <memory>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/communicator_backend.h"
#include "collectives/hierarchical/hosts.h"
#include "collectives/tcp/tcp_backend.h"

namespace geminid::collectives {

// A failure of either group fails the other one, on all hosts, with the same words: those that the
// network's coordinator heard first.
class Layers {
 public:
  // `network` has all ranks, `host` those of this rank's host.
  Layers(std::unique_ptr<TcpBackend> network, std::unique_ptr<CommunicatorBackend> host,
         const Hosts& hosts);
  ~Layers();
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;

  const Hosts& hosts() const { return hosts_; }
  TcpBackend& network() const { return *network_; }
  int host() const { return hosts_.HostOf(network_->Rank()); }
  int local() const { return hosts_.LocalOf(network_->Rank()); }
  // How many ranks this host has.
  int size() const { return hosts_.SizeOf(host()); }
  // Whether every host has a rank of this one's number.
  bool has_twins() const { return local() < hosts_.ranks_each; }
  // The rank on another host that has this rank's place there.
  int Twin(int host) const { return hosts_.RankAt(host, local()); }

  // What every collective does first: returns when all ranks of this host have entered it, and
  // tells them if they disagree.
  absl::Status Arrive(const Operation& operation, absl::Duration timeout);
  // For messages, which nobody else needs to arrive for.
  void Allow(absl::Duration timeout);

  // Something between the ranks of this host.
  using OnHost = absl::FunctionRef<absl::Status(CommunicatorBackend& host)>;
  absl::Status Inside(OnHost work);
  // An exchange with ranks of other hosts, and what can be done while the bytes travel. It may be
  // what the peers wait for.
  using Meanwhile = std::function<absl::Status()>;
  absl::Status Between(const Parcels& parcels, const Meanwhile& meanwhile = nullptr);

 private:
  absl::Status Verdict(const absl::Status& status);

  const Hosts hosts_;
  const std::unique_ptr<TcpBackend> network_;
  const std::unique_ptr<CommunicatorBackend> host_;
  // Whoever waits for a rank that has not come gives up first and names it; whoever waits for those
  // who wait, later.
  absl::Duration timeout_between_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_HIERARCHICAL_LAYERS_H_
