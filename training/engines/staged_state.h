// Presents the state of several engines, one for each pipeline stage or group of experts, as the
// state of the whole model. So checkpoints do not depend on how the model is partitioned.
#ifndef GEMINID_TRAINING_ENGINES_STAGED_STATE_H_
#define GEMINID_TRAINING_ENGINES_STAGED_STATE_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/zero.h"

namespace geminid::trainer {

class StagedState final : public zero::ModelState {
 public:
  // Ids are those of `whole`, the model's parameters. `part` has the engine's parameters, under the
  // same names. `stages` has one rank of each part, in order. If a parameter is in several parts,
  // its values are equal, and the first part saves it. All calls are collectives of `stages`. The
  // arguments outlive this object. INTERNAL: a parameter is in no part.
  static absl::StatusOr<std::unique_ptr<StagedState>> Create(
      const std::vector<zero::Parameter>& whole, const std::vector<zero::Parameter>& part,
      zero::Engine* engine, collectives::Communicator* stages);

  absl::Status Initialize(const Fill& fill) override;
  void Invalidate(std::string why) override { engine_->Invalidate(std::move(why)); }
  absl::StatusOr<std::vector<float>> ReadParameter(zero::ParameterId id) override;
  std::vector<zero::ShardRange> ShardOf(zero::ParameterId id) const override;
  bool HasState(zero::ParameterId id, zero::StateKind kind) const override;
  zero::DataType state_type() const override { return engine_->state_type(); }
  const char* optimizer_name() const override { return engine_->optimizer_name(); }
  absl::Status ReadShard(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                         std::span<float> values) override;
  absl::Status WriteShard(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                          std::span<const float> values) override;
  absl::Status Restore(const zero::Progress& progress) override;
  absl::StatusOr<zero::Progress> GetProgress() override;
  absl::Status StartSnapshot(std::shared_ptr<zero::SnapshotSink> sink) override;
  absl::Status WaitSnapshot() override;
  // All stages resume at the same step, because their engines have Options::all_ranks.
  std::optional<zero::Resumed> resumed() const override { return engine_->resumed(); }
  absl::Status Meet(std::string_view words) override { return engine_->Meet(words); }

 private:
  // A parameter of the whole model.
  struct Place {
    uint64_t elements = 0;
    std::optional<zero::ParameterId> here = {};  // in this stage's engine
    int stage = 0;                               // the first that has it; this one saves it
    std::vector<bool> states = {};               // by StateKind
  };

  StagedState(zero::Engine* engine, collectives::Communicator* stages)
      : engine_(engine), stages_(stages) {}
  absl::StatusOr<zero::ParameterId> Here(zero::ParameterId id) const;
  const Place& PlaceOf(zero::ParameterId id) const { return places_[static_cast<size_t>(id)]; }

  zero::Engine* const engine_;
  collectives::Communicator* const stages_;
  std::vector<Place> places_;             // of the whole model
  std::vector<zero::ParameterId> whole_;  // the model's ids, by the engine's
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_ENGINES_STAGED_STATE_H_
