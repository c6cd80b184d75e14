// State in and out: this rank's shard as values, shard by shard or whole, and snapshots of it. What
// checkpoints are made of.
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

// Not thread-safe, but for the snapshotter. The caller waits for updates before it reads or writes.
class StateIo {
 public:
  // All outlive it.
  StateIo(const EngineSetup& setup, StateStore* store, RankLinks* links);

  // --- what may be asked; INVALID_ARGUMENT, and nothing has happened ---

  // What this rank has of a parameter; nothing: there is no such parameter.
  std::vector<ShardRange> ShardOf(ParameterId id) const;
  bool Has(ParameterId id, StateKind kind) const;
  absl::Status Check(ParameterId id, StateKind kind) const;
  // That the parameter's type has all of these values, which are its elements from `offset` on.
  absl::Status CheckValues(ParameterId id, uint64_t offset, std::span<const float> values) const;
  // The parts of these elements, all of which must be in this rank's shard.
  absl::StatusOr<std::vector<ShardPart>> PiecesOf(ParameterId id, uint64_t offset,
                                                  uint64_t elements) const;

  // --- `values`: of the elements from `offset` on, which these pieces are of ---

  using Pieces = std::vector<ShardPart>;
  absl::Status Read(const Pieces& pieces, StateKind kind, uint64_t offset,
                    std::span<float> values) const;
  absl::Status Write(const Pieces& pieces, StateKind kind, uint64_t offset,
                     std::span<const float> values);
  // Reduced gradients are kept divided by `scale`.
  absl::Status ReadGradient(const Pieces& pieces, uint64_t offset, double scale,
                            std::span<float> values) const;
  absl::Status WriteGradient(const Pieces& pieces, uint64_t offset, double scale,
                             std::span<const float> values);

  // --- all ranks together ---

  // Every parameter is what the trainer gives. `filled`: what became of its function, on this rank;
  // after an error the rest is left alone.
  absl::Status Initialize(const Engine::Fill& fill, absl::Status* filled);
  absl::Status InitializeShards(const Engine::FillRange& fill, absl::Status* filled);
  // Whether all ranks were given their values: the first rank that was not, else nothing.
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
