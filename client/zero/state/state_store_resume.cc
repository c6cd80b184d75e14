// Takes over the state of a previous process. The store claims its chunks, and reads from the
// version words which extents hold the newest state. Then it moves all state to where it is when an
// engine begins. State with a home goes home, since the next plan decides anew what lives on the
// device.
//
// This process may die at any instruction, and its replacement still finds the same state. Copies
// home can be repeated, and a granule's place changes by one store, after its bytes are there.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/src/session_internal.h"
#include "client/zero/basics/crash_points.h"
#include "client/zero/state/state_store.h"

namespace geminid::zero {
namespace {

constexpr char kNotesName[] = "step notes";
constexpr char kFreesState[] =
    "; give the same as that process, or create the engine without resume, which frees that state";

}  // namespace

// The note decides where state lies, not this process. Without a note, the state may still lie
// where this process would put it.
absl::Status StateStore::ClaimNoteOfDisk() {
  if (!options_.NotesDisk()) return absl::OkStatus();
  std::optional<std::vector<ChunkId>> ids;
  GEMINID_ASSIGN_OR_RETURN(ids, chunks_.Claim({NoteOfDiskSpec(layout_)}));
  if (!ids.has_value()) return absl::OkStatus();
  previous_.note_of_disk = ids->front();
  previous_.chosen_on_disk = std::exchange(options_.on_disk, {});
  const std::byte* const note = chunks_.session().Home(previous_.note_of_disk);
  for (size_t c = 0; c < layout_.chunks.size(); ++c) {
    options_.on_disk.push_back(note[c] != std::byte{});
  }
  return absl::OkStatus();
}

// Called before the state exists that the note is about.
absl::Status StateStore::NoteDisk() {
  if (!options_.NotesDisk()) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(disk_.count->Share());
  if (previous_.note_of_disk == kNoChunk) {
    GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkId> ids,
                             chunks_.Allocate({NoteOfDiskSpec(layout_)}));
    previous_.note_of_disk = ids.front();
  }
  std::byte* const note = chunks_.session().Home(previous_.note_of_disk);
  for (size_t c = 0; c < layout_.chunks.size(); ++c) {
    const bool on_disk = !options_.on_disk.empty() && options_.on_disk[c];
    note[c] = on_disk ? std::byte{1} : std::byte{0};
  }
  return absl::OkStatus();
}

// The last step of a previous process whose state is whole; null: there is none.
const shm::CommitRecord* StateStore::StepOfPrevious() const {
  const bool is_whole = commit_->header.resumable.load() == 1;
  return is_whole && chunks_.session().is_successor() ? shm::NewestRecord(*commit_) : nullptr;
}

uint32_t StateStore::OptimizerNumber() const {
  return options_.optimizer ? static_cast<uint32_t>(*options_.optimizer) + 1 : 0;
}

// Optimizers have arrays of the same sizes for different things.
absl::Status StateStore::CheckOptimizer() const {
  const uint32_t before = commit_->header.optimizer;
  const shm::CommitRecord* const last = StepOfPrevious();
  if (last == nullptr || before == 0 || OptimizerNumber() == 0 || before == OptimizerNumber()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the process before this one left the state of ",
      std::string(kernels::OptimizerName(static_cast<kernels::OptimizerKind>(before - 1))),
      " after step ", last->step, ", and this engine's optimizer is ",
      std::string(kernels::OptimizerName(*options_.optimizer)), kFreesState));
}

// State of another form stays. Only a run that has no use for it may free it.
absl::Status StateStore::CheckNoPreviousState(const std::string& missing) const {
  const shm::CommitRecord* const last = StepOfPrevious();
  if (last == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the process before this one left its state after step ", last->step,
                   ", but with other parameters or options: ", missing, kFreesState));
}

absl::StatusOr<std::vector<ChunkId>> StateStore::ObtainChunks(StateList* list) {
  std::optional<std::vector<ChunkId>> ids;
  if (options_.resume) {
    std::string missing;
    GEMINID_ASSIGN_OR_RETURN(ids, chunks_.Claim(list->specs, &missing));
    if (!ids.has_value()) GEMINID_RETURN_IF_ERROR(CheckNoPreviousState(missing));
  }
  previous_.claimed = ids.has_value();
  if (previous_.claimed && !options_.on_device) {
    std::vector<ChunkSpec> spare;
    DeviceSpareSlots(&spare);
    std::optional<std::vector<ChunkId>> spares;
    GEMINID_ASSIGN_OR_RETURN(spares, chunks_.Claim(spare));
    previous_.device_spare = std::move(spares).value_or(std::vector<ChunkId>());
  }
  if (previous_.claimed) {
    GEMINID_RETURN_IF_ERROR(
        chunks_.ClaimSwapChunks(options_.on_device ? *ids : previous_.device_spare));
    if (previous_.note_of_disk == kNoChunk) GEMINID_RETURN_IF_ERROR(NoteDisk());
    return *ids;
  }
  SetResumable(false);  // before the state is freed
  GEMINID_RETURN_IF_ERROR(FreeUnclaimed(chunks_.session()));
  if (previous_.note_of_disk != kNoChunk) {
    options_.on_disk = previous_.chosen_on_disk;
    *list = ListState(layout_, options_);
  }
  GEMINID_RETURN_IF_ERROR(NoteDisk());
  return chunks_.Allocate(list->specs);
}

absl::Status StateStore::ObtainNotes() {
  if (!options_.noted_tensors.has_value()) return absl::OkStatus();
  const std::vector<ChunkSpec> specs = {
      {kNotesName, ChunkKind::kGeneric, StepNotes::BytesFor(*options_.noted_tensors)}};
  std::optional<std::vector<ChunkId>> ids;
  if (previous_.claimed) {
    GEMINID_ASSIGN_OR_RETURN(ids, chunks_.Claim(specs));
    if (!ids.has_value())
      previous_.status = absl::DataLossError("the record of its steps' hyperparameters is missing");
    GEMINID_RETURN_IF_ERROR(FreeUnclaimed(chunks_.session()));
    CrashPoint("state claimed");
  }
  if (!ids.has_value()) {
    GEMINID_ASSIGN_OR_RETURN(ids, chunks_.Allocate(specs));
  }
  notes_.emplace(chunks_.session().Home(ids->front()), *options_.noted_tensors);
  return absl::OkStatus();
}

// Notes a lasting reason why training cannot go on from the state. Another error may pass, so it is
// returned, and the next replacement process may try again.
absl::Status StateStore::NoteWhatIsLeft(absl::Status found) {
  if (!found.ok() && !absl::IsNotFound(found) && !absl::IsDataLoss(found)) return found;
  previous_.status = std::move(found);
  return absl::OkStatus();
}

absl::Status StateStore::TakeUp() {
  if (commit_->header.resumable.load() != 1 || shm::NewestRecord(*commit_) == nullptr) {
    return absl::NotFoundError("the retained state has no committed step");
  }
  std::vector<bool> used(extents_.size(), false);
  std::vector<ChunkSpec> specs;
  const std::vector<ExtentSlots> device_spares =
      previous_.device_spare.empty() ? std::vector<ExtentSlots>() : DeviceSpareSlots(&specs);
  OnDeviceSpares on_device_spares(device_spares.size());
  GEMINID_RETURN_IF_ERROR(ReadVersions(&used, &on_device_spares));
  if (!options_.on_device) GEMINID_RETURN_IF_ERROR(CopyAllHome());
  for (size_t i = 0; i < device_spares.size(); ++i) {
    if (!on_device_spares[i].has_value()) continue;
    GEMINID_RETURN_IF_ERROR(TakeFromDeviceSpare(device_spares[i], *on_device_spares[i], &used));
  }
  GEMINID_RETURN_IF_ERROR(FreeDeviceSpare());
  GEMINID_RETURN_IF_ERROR(FindSpares(used));
  if (options_.tensor_state_bytes > 0) {
    const uint64_t word = commit_->versions[layout_.granules].load();
    tensor_states_.current =
        shm::ChunkVersion::Decode(word).extent % tensor_states_.addresses.size();
  }
  FindAddresses();
  return absl::OkStatus();
}

// Finds one spare for each form with trained extents.
absl::Status StateStore::FindSpares(const std::vector<bool>& used) {
  const Tier tier = options_.on_device ? kDevice : kHost;
  std::vector<ChunkSpec> specs;
  for (const ExtentSlots& spare :
       AddSpares(layout_, options_, options_.has_homes(), "spare", &specs)) {
    const std::optional<uint32_t> extent = UnusedExtent(spare.form, used);
    if (!extent.has_value()) return absl::DataLossError("there is no spare extent");
    spare_[SpareOf(tier, spare.form)] = *extent;
  }
  return absl::OkStatus();
}

std::optional<uint32_t> StateStore::UnusedExtent(const StateForm& form,
                                                 const std::vector<bool>& used) const {
  for (uint32_t extent = 0; extent < used.size(); ++extent) {
    if (!used[extent] && extents_[extent].form == form) return extent;
  }
  return std::nullopt;
}

// Checks that an extent belongs to one granule, of the extent's form. Numbers beyond the list are
// those of the device's spares.
absl::Status StateStore::ReadVersions(std::vector<bool>* used, OnDeviceSpares* on_device_spares) {
  for (const ChunkShape& chunk : layout_.chunks) {
    for (uint32_t g = chunk.first_granule; g < chunk.first_granule + chunk.granules; ++g) {
      const uint32_t extent = shm::ChunkVersion::Decode(commit_->versions[g].load()).extent;
      const bool there =
          extent < used->size() && !(*used)[extent] && extents_[extent].form == extents_[g].form;
      const size_t spare = extent - std::min<size_t>(extent, used->size());
      const bool on_spare = extent >= used->size() && spare < on_device_spares->size() &&
                            !(*on_device_spares)[spare].has_value();
      if ((!there && !on_spare) || (!chunk.trainable && extent != g)) {
        return absl::DataLossError(
            absl::StrCat("granule ", g, " is said to be in extent ", extent));
      }
      if (on_spare) {
        (*on_device_spares)[spare] = g;
        continue;
      }
      (*used)[extent] = true;
      current_[g].store(extent);
    }
  }
  return absl::OkStatus();
}

absl::Status StateStore::CopyHome(ChunkId from, ChunkId to) {
  return chunks_.session()
      .Transfer({.source = from,
                 .destination = to,
                 .bytes = chunks_.session().Bytes(from),
                 .cause = TransferCause::kWriteBack})
      .Wait(options_.timeout);
}

// Copies home all state in the arena, which is never older than its home.
absl::Status StateStore::CopyAllHome() {
  for (const ChunkId chunk : chunks_.all()) {
    if (chunks_.session().Home(chunk) == nullptr) continue;
    if (chunks_.session().ResidencyOf(chunk) != geminid::Residency::kResident) continue;
    GEMINID_RETURN_IF_ERROR(CopyHome(chunk, chunk));
    GEMINID_RETURN_IF_ERROR(chunks_.session().Drop(chunk).Wait(options_.timeout));
  }
  return absl::OkStatus();
}

absl::Status StateStore::TakeFromDeviceSpare(const ExtentSlots& spare, uint32_t granule,
                                             std::vector<bool>* used) {
  const std::optional<uint32_t> place = UnusedExtent(spare.form, *used);
  if (!place.has_value()) return absl::DataLossError("there is no spare extent");
  Session& session = chunks_.session();
  const uint32_t to = *place;
  const Extent source = MakeExtent(spare, previous_.device_spare, kDevice);
  const Extent& target = extents_[to];
  std::vector<std::pair<ChunkId, ChunkId>> copies = {{source.weight, target.weight},
                                                     {source.remainder, target.remainder}};
  for (size_t i = 0; i < kMaxStateArrays; ++i) {
    copies.emplace_back(source.arrays[i], target.arrays[i]);
  }
  for (const auto& [from, home] : copies) {
    if (from == kNoChunk) continue;
    const ChunkId contents = chunks_.ContentsOf(from);
    if (contents == kNoChunk) {
      return absl::DataLossError("the state in the device's spare extent is missing");
    }
    if (contents == from) {
      GEMINID_RETURN_IF_ERROR(CopyHome(from, home));
    } else {
      std::memcpy(session.Home(home), session.Home(contents), session.Bytes(home));
    }
  }
  CrashPoint("spare brought");
  const uint64_t epoch = shm::ChunkVersion::Decode(commit_->versions[granule].load()).epoch;
  commit_->versions[granule].store(shm::ChunkVersion{epoch, to}.Encode(),
                                   std::memory_order_release);
  current_[granule].store(to);
  (*used)[to] = true;
  return absl::OkStatus();
}

absl::Status StateStore::FreeDeviceSpare() {
  if (previous_.device_spare.empty()) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(chunks_.WaitSettled());
  GEMINID_RETURN_IF_ERROR(chunks_.Free(previous_.device_spare));
  previous_.device_spare.clear();
  return chunks_.FreeSwapChunks();
}

std::vector<uint32_t> StateStore::GranulesBefore(uint64_t epoch) const {
  std::vector<uint32_t> granules;
  for (const ChunkShape& chunk : layout_.chunks) {
    if (!chunk.trainable) continue;
    for (uint32_t g = chunk.first_granule; g < chunk.first_granule + chunk.granules; ++g) {
      const uint64_t word = commit_->versions[g].load();
      if (shm::ChunkVersion::Decode(word).epoch < epoch) granules.push_back(g);
    }
  }
  return granules;
}

bool StateStore::IsTensorStateBefore(uint64_t epoch) const {
  if (options_.tensor_state_bytes == 0) return false;
  return shm::ChunkVersion::Decode(commit_->versions[layout_.granules].load()).epoch < epoch;
}

}  // namespace geminid::zero
