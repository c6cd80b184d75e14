#include "training/engines/staged_state.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

using zero::ParameterId;
using zero::StateKind;

uint64_t ElementsOf(const zero::Parameter& parameter) {
  uint64_t elements = 1;
  for (const int64_t size : parameter.shape) elements *= static_cast<uint64_t>(size);
  return elements;
}

// Passes on what this stage keeps, under the model's ids.
class RenamingSink final : public zero::SnapshotSink {
 public:
  // `names`: by the engine's ids, the model's; nothing for what another rank keeps.
  RenamingSink(std::shared_ptr<zero::SnapshotSink> sink,
               std::vector<std::optional<ParameterId>> names)
      : sink_(std::move(sink)), names_(std::move(names)) {}

  absl::Status Write(ParameterId id, StateKind kind, uint64_t offset,
                     std::span<const float> values) override {
    const std::optional<ParameterId> name = names_[static_cast<size_t>(id)];
    return name ? sink_->Write(*name, kind, offset, values) : absl::OkStatus();
  }

 private:
  const std::shared_ptr<zero::SnapshotSink> sink_;
  const std::vector<std::optional<ParameterId>> names_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<StagedState>> StagedState::Create(
    const std::vector<zero::Parameter>& whole, const std::vector<zero::Parameter>& part,
    zero::Engine* engine, collectives::Communicator* stages) {
  std::unique_ptr<StagedState> state(new StagedState(engine, stages));
  std::map<std::string, ParameterId> here;
  for (uint32_t i = 0; i < part.size(); ++i) here[part[i].name] = ParameterId{i};
  state->whole_.resize(part.size());
  // By parameter: the first stage that has it, then for each kind of state whether it is there.
  constexpr size_t kNumbers = 1 + zero::kStateKinds.size();
  std::vector<double> known;
  for (uint32_t i = 0; i < whole.size(); ++i) {
    Place place = {.elements = ElementsOf(whole[i])};
    if (const auto found = here.find(whole[i].name); found != here.end()) {
      place.here = found->second;
      state->whole_[static_cast<size_t>(found->second)] = ParameterId{i};
    }
    known.push_back(place.here ? -stages->Rank() : -stages->WorldSize());
    for (const StateKind kind : zero::kStateKinds) {
      known.push_back(place.here && engine->HasState(*place.here, kind) ? 1 : 0);
    }
    state->places_.push_back(std::move(place));
  }
  GEMINID_RETURN_IF_ERROR(stages->AllReduce(known, known, collectives::ReduceOp::kMax));
  for (size_t i = 0; i < whole.size(); ++i) {
    Place& place = state->places_[i];
    place.stage = -static_cast<int>(known[i * kNumbers]);
    if (place.stage == stages->WorldSize()) {
      return absl::InternalError(
          absl::StrCat("parameter '", whole[i].name, "' is in no part of the model"));
    }
    for (size_t kind = 1; kind < kNumbers; ++kind) {
      place.states.push_back(known[i * kNumbers + kind] > 0);
    }
  }
  return state;
}

absl::StatusOr<ParameterId> StagedState::Here(ParameterId id) const {
  if (const std::optional<ParameterId> here = PlaceOf(id).here) return *here;
  return absl::InvalidArgumentError(
      absl::StrCat("parameter ", static_cast<uint32_t>(id), " is in the parts of other ranks"));
}

absl::Status StagedState::Initialize(const Fill& fill) {
  return engine_->Initialize([&](ParameterId id, std::span<float> values) {
    return fill(whole_[static_cast<size_t>(id)], values);
  });
}

absl::StatusOr<std::vector<float>> StagedState::ReadParameter(ParameterId id) {
  const Place& place = PlaceOf(id);
  std::vector<float> values(place.elements);
  if (stages_->Rank() == place.stage) {
    GEMINID_ASSIGN_OR_RETURN(values, engine_->ReadParameter(*place.here));
  }
  GEMINID_RETURN_IF_ERROR(stages_->Broadcast(values, place.stage));
  return values;
}

std::vector<zero::ShardRange> StagedState::ShardOf(ParameterId id) const {
  const std::optional<ParameterId> here = PlaceOf(id).here;
  return here ? engine_->ShardOf(*here) : std::vector<zero::ShardRange>();
}

bool StagedState::HasState(ParameterId id, StateKind kind) const {
  return PlaceOf(id).states[static_cast<size_t>(kind)];
}

absl::Status StagedState::ReadShard(ParameterId id, StateKind kind, uint64_t offset,
                                    std::span<float> values) {
  GEMINID_ASSIGN_OR_RETURN(const ParameterId here, Here(id));
  return engine_->ReadShard(here, kind, offset, values);
}

absl::Status StagedState::WriteShard(ParameterId id, StateKind kind, uint64_t offset,
                                     std::span<const float> values) {
  GEMINID_ASSIGN_OR_RETURN(const ParameterId here, Here(id));
  return engine_->WriteShard(here, kind, offset, values);
}

absl::Status StagedState::Restore(const zero::Progress& progress) {
  return engine_->Restore(progress);
}

absl::StatusOr<zero::Progress> StagedState::GetProgress() { return engine_->GetProgress(); }

absl::Status StagedState::StartSnapshot(std::shared_ptr<zero::SnapshotSink> sink) {
  std::vector<std::optional<ParameterId>> names;
  for (const ParameterId id : whole_) {
    const bool keeps = PlaceOf(id).stage == stages_->Rank();
    names.push_back(keeps ? std::optional(id) : std::nullopt);
  }
  return engine_->StartSnapshot(std::make_shared<RenamingSink>(std::move(sink), std::move(names)));
}

absl::Status StagedState::WaitSnapshot() { return engine_->WaitSnapshot(); }

}  // namespace geminid::trainer
