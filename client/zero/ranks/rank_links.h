// The engine's own links to the other ranks: they move chunks between ranks, carry agreements, and
// connect the ranks of this host.
#ifndef GEMINID_CLIENT_ZERO_RANKS_RANK_LINKS_H_
#define GEMINID_CLIENT_ZERO_RANKS_RANK_LINKS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/zero/basics/layout.h"
#include "client/zero/ranks/host_shards.h"
#include "client/zero/ranks/rank_agreement.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"

namespace geminid::zero {

class RankLinks {
 public:
  // A collective of `ranks`, and of Options::host_ranks and all_ranks if they are given. Compares
  // the arguments of all ranks: INVALID_ARGUMENT on all of them if they differ. After another error
  // ranks may wait in collectives of the given communicators. `session`, `ranks` and the options
  // outlive this object. `names`: a chunk of a trace as messages name it.
  static absl::StatusOr<std::unique_ptr<RankLinks>> Connect(
      Session* session, collectives::Communicator* ranks, const std::vector<Parameter>& parameters,
      const Options& options, const Layout& layout,
      std::function<std::string(uint32_t chunk)> names);
  ~RankLinks();
  RankLinks(const RankLinks&) = delete;
  RankLinks& operator=(const RankLinks&) = delete;

  int rank() const { return ranks_->Rank(); }
  int world_size() const { return ranks_->WorldSize(); }
  // Used between operations of the engine; mover() and devices(), which may be null, by the mover.
  collectives::Communicator* control() const { return control_.get(); }
  collectives::Communicator* mover() const { return mover_.get(); }
  collectives::Communicator* devices() const { return devices_.get(); }
  HostShards* host_shards() const { return host_shards_.get(); }  // or null
  RankAgreement& agreement() { return agreement_; }
  // The ranks that have elements of the tensors that the optimizer sees.
  collectives::Communicator* Summing() const { return NeedsSumsOfAll() ? all_.get() : control(); }
  // The ranks that resume together.
  collectives::Communicator* Resuming() const { return all_ != nullptr ? all_.get() : control(); }

  // A collective. Charges the memory that the ranks of this host share to the session of the rank
  // that created it, until GiveSegmentsBack or the session's end.
  absl::Status ChargeSegments();
  // The bytes that ChargeSegments will charge.
  absl::StatusOr<uint64_t> SegmentBytes() const;
  void GiveSegmentsBack();

  // A collective. INVALID_ARGUMENT unless all ranks of a model together count each element of its
  // tensors once. `counted`: this rank's counts, by tensor.
  absl::Status CheckCounted(std::vector<int64_t> counted) const;

  // A collective that ends when all ranks have called it with the same words. INVALID_ARGUMENT says
  // which rank called what instead. Only while the mover is idle, whose communicator carries it.
  absl::Status Meet(std::string_view words) const;

  // Ends every call of the other ranks with `reason`. Usable on any thread.
  void Abort(const std::string& reason) const;
  // The error with which the trainer itself ended its communicator.
  absl::Status health() const { return ranks_->health(); }

  void AddTo(Statistics* statistics) const;

 private:
  RankLinks(Session* session, collectives::Communicator* ranks, const Options& options,
            std::unique_ptr<collectives::Communicator> control,
            std::function<std::string(uint32_t chunk)> names);
  absl::Status CheckAndConnect(const std::vector<Parameter>& parameters, const Layout& layout);
  absl::Status ConnectDevices(const Layout& layout);
  bool NeedsSumsOfAll() const;

  Session* const session_;
  collectives::Communicator* const ranks_;  // the trainer's
  const Options& options_;
  const std::unique_ptr<collectives::Communicator> control_;
  RankAgreement agreement_;
  std::unique_ptr<collectives::Communicator> mover_;
  std::unique_ptr<collectives::Communicator> devices_;
  std::unique_ptr<collectives::Communicator> all_;  // connects all_ranks; or null
  std::unique_ptr<HostShards> host_shards_;
  std::string exchange_by_;  // for people
  // Charges of shared memory; and whether they are given back before the session ends.
  const std::shared_ptr<std::atomic<bool>> gives_segments_back_ =
      std::make_shared<std::atomic<bool>>(true);
  std::shared_ptr<void> segment_charge_;
  std::shared_ptr<void> host_segment_charge_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_RANKS_RANK_LINKS_H_
