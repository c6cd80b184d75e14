// A model's state that counts the bytes read and written, for the progress of loading, saving and
// hashing.
#ifndef GEMINID_TRAINING_LOGS_COUNTED_STATE_H_
#define GEMINID_TRAINING_LOGS_COUNTED_STATE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/model_state.h"
#include "geminid/zero.h"
#include "training/logs/phase.h"

namespace geminid::trainer {

// Threads: as the state, which outlives this object. Any thread may ask for the progress.
class CountedState final : public zero::ModelState {
 public:
  CountedState(zero::ModelState* state, const std::vector<zero::Parameter>& parameters);

  // CountFromZero restarts the count. Kinds: all kinds of state, or the values alone.
  enum class Kinds { kValues, kAll };
  void CountFromZero() { moved_elements_ = 0; }
  // The elements of this rank's shards that were written since, of all of them.
  PhaseProgress Loaded(Kinds kinds) const;
  // The values of the whole model that were read or filled since, of all of them.
  PhaseProgress Passed() const;
  // The elements that the newest snapshot has given to its sink, of all of them.
  PhaseProgress Saved() const;
  // How long the last whole snapshot took; 0: there was none.
  double snapshot_seconds() const { return snapshot_seconds_; }

  absl::Status Initialize(const Fill& fill) override;
  void Invalidate(std::string why) override { state_->Invalidate(std::move(why)); }
  absl::StatusOr<std::vector<float>> ReadParameter(zero::ParameterId id) override;
  std::vector<zero::ShardRange> ShardOf(zero::ParameterId id) const override {
    return state_->ShardOf(id);
  }
  bool HasState(zero::ParameterId id, zero::StateKind kind) const override {
    return state_->HasState(id, kind);
  }
  zero::DataType state_type() const override { return state_->state_type(); }
  const char* optimizer_name() const override { return state_->optimizer_name(); }
  absl::Status ReadShard(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                         std::span<float> values) override {
    return state_->ReadShard(id, kind, offset, values);
  }
  absl::Status WriteShard(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                          std::span<const float> values) override;
  absl::Status Restore(const zero::Progress& progress) override {
    return state_->Restore(progress);
  }
  absl::StatusOr<zero::Progress> GetProgress() override { return state_->GetProgress(); }
  absl::Status StartSnapshot(std::shared_ptr<zero::SnapshotSink> sink) override;
  absl::Status WaitSnapshot() override;
  std::optional<zero::Resumed> resumed() const override { return state_->resumed(); }
  absl::Status Meet(std::string_view words) override { return state_->Meet(words); }

 private:
  zero::ModelState* const state_;
  uint64_t model_elements_ = 0;  // of the whole model's values
  uint64_t value_elements_ = 0;  // of this rank's
  uint64_t state_elements_ = 0;  // of all kinds of this rank's
  std::atomic<uint64_t> moved_elements_ = 0;
  std::shared_ptr<std::atomic<uint64_t>> saved_elements_;  // of the last snapshot
  std::chrono::steady_clock::time_point snapshot_began_;
  std::atomic<double> snapshot_seconds_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_COUNTED_STATE_H_
