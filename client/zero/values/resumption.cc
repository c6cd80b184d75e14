#include "client/zero/values/resumption.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "client/zero/basics/crash_points.h"
#include "client/zero/update/disk_updates.h"
#include "proto/shm/commit_layout.h"

namespace geminid::zero {
namespace {

template <typename T>
absl::Status Share(collectives::Communicator* ranks, int from, std::span<T> values) {
  const auto bytes = std::as_writable_bytes(values);
  return ranks->Broadcast({bytes.data(), bytes.size(), collectives::DType::kUint8}, from);
}

}  // namespace

Resumption::Resumption(const EngineSetup& setup, StateStore* store, GranuleOptimizer* optimizer,
                       RankLinks* links)
    : setup_(setup), store_(*store), optimizer_(*optimizer), links_(*links) {}

// The last step that this rank committed; nullopt: it cannot resume from there.
std::optional<uint64_t> Resumption::StepLeft() const {
  if (!store_.is_claimed() || !store_.left().ok()) return std::nullopt;
  // Gradients that were used on arrival are gone, so a half-made step cannot be finished.
  if (setup_.updates_in_backward()) return std::nullopt;
  const shm::CommitRecord& record = *shm::NewestRecord(*store_.commit());
  StepNote note;
  const bool noted = record.overflow != 0 ||
                     (store_.notes() != nullptr && store_.notes()->Read(record.epoch, &note).ok());
  if (!noted) return std::nullopt;
  return record.step;
}

absl::StatusOr<std::optional<Resumed>> Resumption::Resume(RunPosition* run) {
  collectives::Communicator* const all = links_.Resuming();
  const auto ranks = static_cast<size_t>(all->WorldSize());
  const std::optional<uint64_t> mine = StepLeft();
  // Steps are counted from 1; 0 means that the rank has none.
  std::vector<double> steps(ranks, 0.0);
  steps[static_cast<size_t>(all->Rank())] = static_cast<double>(mine.value_or(0));
  GEMINID_RETURN_IF_ERROR(all->AllReduce(steps, steps, collectives::ReduceOp::kMax));
  const auto [least, most] = std::ranges::minmax_element(steps);
  if (*least == 0 || *most - *least > 1) return std::nullopt;
  const int ahead = static_cast<int>(most - steps.begin());
  if (*least < *most) GEMINID_RETURN_IF_ERROR(PassStep(ahead, *mine < *most, run));
  GEMINID_ASSIGN_OR_RETURN(const uint64_t granules, FinishUpdate());
  std::vector<std::byte> tensor_state(optimizer_.tensor_state_bytes());
  if (!tensor_state.empty()) GEMINID_RETURN_IF_ERROR(store_.ReadTensorState(tensor_state));
  optimizer_.GoOnFrom(tensor_state);
  CrashPoint("resumed");
  const shm::CommitRecord& record = *shm::NewestRecord(*store_.commit());
  run->step = record.step;
  run->updates = record.updates;
  run->loss_scaler = LossScaler::State{.scale = record.next_loss_scale,
                                       .good_steps = record.good_steps,
                                       .overflows = record.overflows};
  setup_.session->SetStep(run->step);
  Resumed resumed = {.step = record.step,
                     .data_position = record.data_position,
                     .was_behind = *mine < *most,
                     .granules_updated = granules};
  std::copy(std::begin(record.random_state), std::end(record.random_state),
            resumed.random_state.begin());
  return resumed;
}

// A rank that is behind writes what the rank ahead wrote before its record, and the record, in the
// same order.
absl::Status Resumption::PassStep(int ahead, bool is_behind, RunPosition* run) {
  const bool is_ahead = links_.Resuming()->Rank() == ahead;
  shm::CommitRecord record = {};
  StepNote note;
  std::vector<std::byte> tensor_state(optimizer_.tensor_state_bytes());
  if (is_ahead) {
    record = *shm::NewestRecord(*store_.commit());
    if (record.overflow == 0) {
      GEMINID_RETURN_IF_ERROR(store_.notes()->Read(record.epoch, &note));
      GEMINID_RETURN_IF_ERROR(ReadTensorStateOf(record.epoch, tensor_state));
    }
  }
  GEMINID_RETURN_IF_ERROR(Share(links_.Resuming(), ahead, std::span(&record, 1)));
  GEMINID_RETURN_IF_ERROR(PassNote(ahead, record.epoch, &note));
  if (!tensor_state.empty()) {
    GEMINID_RETURN_IF_ERROR(Share(links_.Resuming(), ahead, std::span(tensor_state)));
  }
  if (!is_behind) return absl::OkStatus();
  if (record.overflow == 0) {
    if (!tensor_state.empty()) {
      GEMINID_RETURN_IF_ERROR(store_.WriteSpareTensorState(tensor_state));
    }
    store_.notes()->Write(run->epoch + 1, note);
  }
  CrashPoint("step passed");
  run->epoch = shm::WriteRecord(store_.commit(), record);
  CrashPoint("behind recorded");
  return absl::OkStatus();
}

// Sends the note to all ranks. Engines of different parameters have no rates per parameter.
absl::Status Resumption::PassNote(int ahead, uint64_t epoch, StepNote* note) {
  if (setup_.options.all_ranks != nullptr) {
    note->rates.assign(setup_.parameters.size(), {});
    return Share(links_.Resuming(), ahead, std::span(&note->scalars, 1));
  }
  std::vector<std::byte> noted = StepNotes::Encode(epoch, setup_.parameters.size(), *note);
  GEMINID_RETURN_IF_ERROR(Share(links_.control(), ahead, std::span(noted)));
  return StepNotes::Decode(epoch, setup_.parameters.size(), std::move(noted), note);
}

// Reads the tensor state of this epoch's step, and flips to it first if that was not done.
absl::Status Resumption::ReadTensorStateOf(uint64_t epoch, std::span<std::byte> bytes) {
  if (bytes.empty()) return absl::OkStatus();
  if (store_.IsTensorStateBefore(epoch)) store_.FlipTensorState(epoch);
  return store_.ReadTensorState(bytes);
}

// Makes the missing updates of the newest step. Returns the number of granules updated.
absl::StatusOr<uint64_t> Resumption::FinishUpdate() {
  const shm::CommitRecord& record = *shm::NewestRecord(*store_.commit());
  if (record.overflow != 0) return 0;
  std::vector<std::byte> tensor_state(optimizer_.tensor_state_bytes());
  GEMINID_RETURN_IF_ERROR(ReadTensorStateOf(record.epoch, tensor_state));
  const std::vector<uint32_t> granules = store_.GranulesBefore(record.epoch);
  if (granules.empty()) return 0;
  StepNote note;
  GEMINID_RETURN_IF_ERROR(store_.notes()->Read(record.epoch, &note));
  GEMINID_RETURN_IF_ERROR(optimizer_.Restore(note, tensor_state));
  GEMINID_ASSIGN_OR_RETURN(const auto pool, setup_.MakeUpdatePool());
  std::optional<DiskUpdates> of_disk;
  if (store_.any_on_disk()) of_disk.emplace(&store_, optimizer_);
  size_t added = 0;
  for (size_t i = 0; i < granules.size(); ++i) {
    for (; of_disk.has_value() && added < std::min(i + kPlacesAhead, granules.size()); ++added) {
      if (store_.granule_on_disk(granules[added])) of_disk->Add(granules[added]);
    }
    GEMINID_RETURN_IF_ERROR(store_.granule_on_disk(granules[i])
                                ? of_disk->FinishFirst(record.epoch, pool.get())
                                : optimizer_.Update(granules[i], store_, pool.get()));
    store_.Flip(granules[i], record.epoch);
    CrashPoint("granule resumed");
  }
  return granules.size();
}

}  // namespace geminid::zero
