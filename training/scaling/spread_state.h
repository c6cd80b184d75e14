// The state of a run whose ranks are on several hosts: each host has a part of the image in its
// memory, and what another host needs goes from rank to rank.
#ifndef GEMINID_TRAINING_SCALING_SPREAD_STATE_H_
#define GEMINID_TRAINING_SCALING_SPREAD_STATE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "training/scaling/state_image.h"
#include "training/scaling/state_ranges.h"

namespace geminid::trainer {

// Of one rank. All ranks make the same calls.
class SpreadState {
 public:
  // `host_by_rank`: of these ranks. Both outlive it.
  SpreadState(collectives::Communicator* communicator, const StateImage* image,
              std::vector<size_t> host_by_rank);

  bool is_on_first_host() const { return host() == 0; }

  // --- before other ranks ---

  // The first `hosts_after` hosts are to have the state. `number`: of the handover, as the first
  // rank has it; all get that.
  absl::Status PlanToLeave(size_t hosts_after, uint64_t* number);
  // What this host is to have; nothing: it has no ranks after.
  const std::vector<StateRange>* here() const;
  // This rank's shards, into its host's image or to a host that has ranks after. An error that is
  // the communicator's poisons it.
  absl::Status Leave(std::span<std::byte> image);

  // --- after them ---

  // The position, and this rank's shards: from its host's image, which may be empty, or from other
  // hosts.
  absl::StatusOr<RunPosition> Take(std::span<std::byte> image);
  uint64_t received_bytes() const { return received_bytes_; }  // by this rank, from others

 private:
  using ArraySlice = StateImage::ArraySlice;
  using Move = std::function<absl::Status(const ArraySlice& piece, std::span<std::byte> bytes)>;

  size_t host() const;
  bool leads_host() const;
  absl::StatusOr<RangesByRank> Gather(const std::vector<StateRange>& mine) const;
  absl::Status Exchange(const std::vector<StateTransfer>& transfers, const Move& fill,
                        const Move& drain);
  absl::Status ExchangeWith(const std::vector<ArraySlice>& out, int to,
                            const std::vector<ArraySlice>& in, int from, const Move& fill,
                            const Move& drain, absl::Status* mine);
  absl::StatusOr<RunPosition> TakePosition(std::span<std::byte> image) const;

  collectives::Communicator* const communicator_;
  const StateImage* const image_;
  const std::vector<size_t> host_by_rank_;
  std::optional<LeavingPlan> leaving_;
  uint64_t received_bytes_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SCALING_SPREAD_STATE_H_
