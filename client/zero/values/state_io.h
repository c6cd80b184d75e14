// Reads, writes and initializes state: this rank's shard, or all ranks' parameters. Also has the
// snapshotter. Checkpoints use it.
#ifndef GEMINID_CLIENT_ZERO_VALUES_STATE_IO_H_
#define GEMINID_CLIENT_ZERO_VALUES_STATE_IO_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/zero/options/engine_setup.h"
#include "client/zero/ranks/rank_links.h"
#include "client/zero/state/shard_parts.h"
#include "client/zero/state/state_store.h"
#include "client/zero/values/shard_values.h"
#include "client/zero/values/snapshotter.h"
#include "geminid/zero.h"

namespace geminid::zero {

// Not thread-safe, except the snapshotter. The caller waits for updates before reads and writes.
class StateIo {
 public:
  // All arguments outlive this object.
  StateIo(const EngineSetup& setup, StateStore* store, RankLinks* links);

  // --- checks; INVALID_ARGUMENT, and nothing changes ---

  // This rank's ranges of a parameter; empty if the parameter is unknown.
  std::vector<ShardRange> ShardOf(ParameterId id) const;
  bool Has(ParameterId id, StateKind kind) const;
  absl::Status Check(ParameterId id, StateKind kind) const;
  // Whether the parameter's type can hold all `values`, for its elements from `offset` on.
  absl::Status CheckValues(ParameterId id, uint64_t offset, std::span<const float> values) const;
  // The shard parts that make up these elements, all of which must be in this rank's shard.
  absl::StatusOr<std::vector<ShardPart>> PiecesOf(ParameterId id, uint64_t offset,
                                                  uint64_t elements) const;

  // --- `values`: of the elements from `offset` on, which `pieces` divide ---

  using Pieces = std::vector<ShardPart>;
  absl::Status Read(const Pieces& pieces, StateKind kind, uint64_t offset,
                    std::span<float> values) const;
  absl::Status Write(const Pieces& pieces, StateKind kind, uint64_t offset,
                     std::span<const float> values);
  // The store has reduced gradients divided by `scale`; `values` are the undivided ones.
  absl::Status ReadGradient(const Pieces& pieces, uint64_t offset, double scale,
                            std::span<float> values) const;
  absl::Status WriteGradient(const Pieces& pieces, uint64_t offset, double scale,
                             std::span<const float> values);

  // --- by all ranks together ---

  // Sets every parameter to the values that the trainer's function gives. `filled` gets the
  // function's status on this rank; after an error the remaining values are left alone.
  absl::Status Initialize(const Engine::Fill& fill, absl::Status* filled);
  absl::Status InitializeShards(const Engine::FillRange& fill, absl::Status* filled);
  // The first rank whose `filled` is an error; nullopt: there is none.
  absl::StatusOr<std::optional<uint32_t>> FirstWithout(const absl::Status& filled);
  absl::StatusOr<std::vector<float>> ReadParameter(ParameterId id);

  Snapshotter& snapshotter() { return snapshotter_; }

 private:
  std::vector<ShardPart> PartsOf(uint32_t tensor) const;

  const EngineSetup& setup_;
  StateStore& store_;
  RankLinks& links_;
  ShardValues values_;
  Snapshotter snapshotter_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_VALUES_STATE_IO_H_
