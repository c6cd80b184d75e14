#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "client/checkpoint/agreement.h"
#include "client/checkpoint/checksums.h"
#include "client/checkpoint/contents.h"
#include "client/checkpoint/folder.h"
#include "client/checkpoint/newest.h"
#include "client/checkpoint/run_record.h"
#include "client/checkpoint/tensor_file.h"
#include "geminid/checkpoint.h"
#include "geminid/communicator.h"
#include "kernels/numeric/cast/cast.h"
#include "kernels/runtime/common/bfloat16.h"

namespace geminid::checkpoint {
namespace {

// The words for which ranks meet before they wait for disks.
constexpr char kSave[] = "saving a checkpoint";
// Ranks wait for each other's disks, which may be slow and differ.
constexpr absl::Duration kDiskTimeout = absl::Hours(1);

// The contents that all checkpoints of a saver have in common.
struct Inventory {
  std::vector<zero::Parameter> parameters;
  zero::DataType state_type = zero::DataType::kFloat32;
  Contents contents;
};

// One checkpoint that one rank is writing: puts the parts of a snapshot in their places. The engine
// may hold it longer than the saver lives.
class Writing final : public zero::SnapshotSink {
 public:
  Writing(std::shared_ptr<const Inventory> inventory, std::string folder)
      : inventory_(std::move(inventory)), folder_(std::move(folder)) {}

  // Called on one rank before the others open the files: creates each file with its header.
  absl::Status CreateFiles() {
    for (const PlannedFile& planned : inventory_->contents.files) {
      GEMINID_ASSIGN_OR_RETURN(TensorFile file,
                               TensorFile::Create(PathOf(planned.name), planned.header));
      const std::string header = Encode(planned.header);
      checksums_.Add(static_cast<uint32_t>(files_.size()), 0, std::as_bytes(std::span(header)));
      files_.push_back(std::move(file));
    }
    return absl::OkStatus();
  }

  absl::Status OpenFiles() {
    for (const PlannedFile& planned : inventory_->contents.files) {
      GEMINID_ASSIGN_OR_RETURN(TensorFile file,
                               TensorFile::OpenToWrite(PathOf(planned.name), planned.header));
      files_.push_back(std::move(file));
    }
    return absl::OkStatus();
  }

  absl::Status Write(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                     std::span<const float> values) override {
    if (given_up_) return absl::CancelledError("the checkpoint was abandoned");
    const std::string tensor =
        TensorName(inventory_->parameters[static_cast<uint32_t>(id)].name, kind);
    if (TypeInFiles(kind, inventory_->state_type) == ElementType::kFloat32) {
      return WriteAt(tensor, offset, std::as_bytes(values));
    }
    std::vector<kernels::BFloat16> halves(values.size());  // exact, since the values came from bf16
    (void)kernels::CastToBFloat16(values.data(), values.size(), halves.data());
    return WriteAt(tensor, offset, std::as_bytes(std::span(halves)));
  }

  // The rest of the snapshot is not needed: it ends at its next part.
  void GiveUp() { given_up_ = true; }

  // Writes bytes of a tensor from its element `element` on.
  absl::Status WriteAt(const std::string& tensor, uint64_t element,
                       std::span<const std::byte> bytes) {
    const TensorPlace place = inventory_->contents.places.at(tensor);
    const TensorFile& file = files_[place.file];
    const uint64_t offset = file.PlaceOf(file.header().tensors[place.entry], element);
    checksums_.Add(place.file, offset, bytes);
    return file.Write(offset, bytes);
  }

  // Writes a small file beside the tensors.
  absl::Status WriteText(const std::string& name, const std::string& text) {
    checksums_.Add(static_cast<uint32_t>(inventory_->contents.files.size() + texts_.size()), 0,
                   std::as_bytes(std::span(text)));
    texts_.push_back(name);
    return WriteNewFile(PathOf(name), text);
  }

  // Syncs this rank's writes, then writes its checksums.
  absl::Status Finish(int rank, int ranks) {
    for (const TensorFile& file : files_) GEMINID_RETURN_IF_ERROR(file.Sync());
    files_.clear();
    std::vector<std::string> names;
    names.reserve(inventory_->contents.files.size() + texts_.size());
    for (const PlannedFile& planned : inventory_->contents.files) names.push_back(planned.name);
    names.insert(names.end(), texts_.begin(), texts_.end());
    return WriteChecksums(PathOf(ChecksumsName(rank, ranks)), names, checksums_.Take());
  }

 private:
  std::string PathOf(const std::string& name) const { return absl::StrCat(folder_, "/", name); }

  const std::shared_ptr<const Inventory> inventory_;
  const std::string folder_;
  std::atomic<bool> given_up_ = false;
  std::vector<TensorFile> files_;
  std::vector<std::string> texts_;
  Checksums checksums_;
};

}  // namespace

class Saver::Impl {
 public:
  Impl(zero::ModelState* state, SaverOptions options)
      : state_(state), options_(std::move(options)) {}
  ~Impl() {
    if (thread_.joinable()) thread_.join();
  }

  absl::Status Start(collectives::Communicator* communicator,
                     std::vector<zero::Parameter> parameters) {
    if (options_.folder.empty() || options_.max_file_bytes == 0) {
      return absl::InvalidArgumentError("a saver needs a folder, and files of at least one byte");
    }
    GEMINID_RETURN_IF_ERROR(state_->Meet(kSave));
    GEMINID_ASSIGN_OR_RETURN(communicator_, communicator->Duplicate("geminid-checkpoint",
                                                                    collectives::Messages::kSmall));
    communicator_->SetTimeout(kDiskTimeout);
    absl::Status made = Plan(std::move(parameters));
    if (made.ok() && leads()) made = TakeFolder();
    return Agree(communicator_.get(), Phase::kMakeFolder, kNoStep, made);
  }

  // Every rank takes part in every agreement, even after an error of its own, so that no answer is
  // taken for that of another save.
  absl::Status Save(const RunState& run, Health health) {
    if (absl::StatusOr<std::string> last = Wait(); !last.ok()) return last.status();
    GEMINID_RETURN_IF_ERROR(state_->Meet(kSave));
    const absl::StatusOr<zero::Progress> progress = state_->GetProgress();
    const uint64_t step = progress.ok() ? progress->step : kNoStep;
    std::shared_ptr<Writing> writing = WritingOf(step);
    absl::Status begun = progress.status();
    if (begun.ok() && leads()) {
      begun = Lead(RecordOf(*progress, run, health), progress->tensor_state, &writing);
    }
    begun = Agree(communicator_.get(), Phase::kBegin, step, begun);
    if (begun.ok()) {
      begun = Agree(communicator_.get(), Phase::kStartPart, step, StartPart(writing));
    }
    if (!begun.ok()) {
      GiveUp(step, writing.get());
      return begun;
    }
    const auto finish = [this, step, health, writing] {
      result_ = Finish(step, health, writing.get());
    };
    // Without another thread this one finishes: the ranks have agreed that there is a checkpoint.
    if (auto thread = base::StartThread(finish); thread.ok()) {
      thread_ = *std::move(thread);
    } else {
      finish();
    }
    return absl::OkStatus();
  }

  // An error is returned once; the next save starts afresh.
  absl::StatusOr<std::string> Wait() {
    if (thread_.joinable()) thread_.join();
    if (!result_.ok()) return std::exchange(result_, last_);
    last_ = *result_;
    return result_;
  }

 private:
  bool leads() const { return communicator_->Rank() == 0; }

  absl::Status Plan(std::vector<zero::Parameter> parameters) {
    GEMINID_ASSIGN_OR_RETURN(const zero::Progress progress, state_->GetProgress());
    auto inventory = std::make_shared<Inventory>();
    GEMINID_ASSIGN_OR_RETURN(
        inventory->contents,
        PlanContents(
            parameters,
            [this](zero::ParameterId id, zero::StateKind kind) {
              return state_->HasState(id, kind);
            },
            state_->state_type(), progress.tensor_state.size(), options_.max_file_bytes));
    inventory->state_type = state_->state_type();
    inventory->parameters = std::move(parameters);
    inventory_ = std::move(inventory);
    return absl::OkStatus();
  }

  absl::Status StartPart(const std::shared_ptr<Writing>& writing) {
    if (!leads()) GEMINID_RETURN_IF_ERROR(writing->OpenFiles());
    // The snapshot of an abandoned checkpoint ends with an error, which was returned already.
    if (std::exchange(gave_up_, false)) state_->WaitSnapshot().IgnoreError();
    return state_->StartSnapshot(writing);
  }

  // Abandons the checkpoint, which gets no name. The snapshot may still be handing out a part.
  void GiveUp(uint64_t step, Writing* writing) {
    writing->GiveUp();
    gave_up_ = true;
    if (leads()) AbandonStep(options_.folder, step);
  }

  absl::Status TakeFolder() {
    GEMINID_RETURN_IF_ERROR(MakeFolder(options_.folder));
    GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> finished, FinishedIn(options_.folder));
    for (const std::string& name : options_.adopts.value_or(finished)) {
      const std::string path = absl::StrCat(options_.folder, "/", name);
      // A folder of such a name that is no checkpoint is the user's.
      if (HasRecord(path)) prunable_.push_back({name, IsHealthy(path)});
    }
    return absl::OkStatus();
  }

  std::shared_ptr<Writing> WritingOf(uint64_t step) const {
    return std::make_shared<Writing>(
        inventory_, absl::StrCat(options_.folder, "/", UnfinishedNameOfStep(step)));
  }

  RunRecord RecordOf(const zero::Progress& progress, const RunState& run, Health health) const {
    RunRecord record;
    record.step = progress.step;
    record.updates = progress.updates;
    record.loss_scaler = progress.loss_scaler;
    record.run = run;
    record.ranks = static_cast<uint64_t>(communicator_->WorldSize());
    record.optimizer = state_->optimizer_name();
    record.healthy = health == Health::kHealthy;
    return record;
  }

  // The first rank's work: the folder, the files, and all small files. If the disk is full, first
  // removes the checkpoints that may be pruned.
  absl::Status Lead(const RunRecord& record, const std::vector<std::byte>& tensor_state,
                    std::shared_ptr<Writing>* writing) {
    if (std::exchange(is_disk_full_, false)) MakeRoom();
    absl::Status status = Begin(record, tensor_state, writing->get());
    if (!absl::IsResourceExhausted(status) || !MakeRoom()) return status;
    *writing = WritingOf(record.step);
    return Begin(record, tensor_state, writing->get());
  }

  // Whether anything was removed. One checkpoint stays, and the last healthy one.
  bool MakeRoom() {
    if (options_.keep < 2) return false;
    const std::vector<std::string> names = ToPrune(prunable_, options_.keep - 1);
    return !names.empty() && RemovePrunable(names).ok();
  }

  OldCheckpoint OlderOf(const std::string& name) const {
    return std::ranges::count(prunable_, name, &FinishedCheckpoint::name) > 0
               ? OldCheckpoint::kIsRemoved
               : OldCheckpoint::kIsKept;
  }

  absl::Status RemovePrunable(const std::vector<std::string>& names) {
    std::erase_if(prunable_, [&](const FinishedCheckpoint& checkpoint) {
      return std::find(names.begin(), names.end(), checkpoint.name) != names.end();
    });
    return RemoveCheckpoints(options_.folder, names);
  }

  absl::Status Begin(const RunRecord& record, const std::vector<std::byte>& tensor_state,
                     Writing* writing) {
    GEMINID_RETURN_IF_ERROR(BeginStep(options_.folder, record.step));
    GEMINID_RETURN_IF_ERROR(writing->CreateFiles());
    if (!tensor_state.empty()) {
      GEMINID_RETURN_IF_ERROR(writing->WriteAt(kTensorStateName, 0, tensor_state));
    }
    GEMINID_RETURN_IF_ERROR(writing->WriteText(kRecordName, ToText(record)));
    for (const auto& [name, text] : options_.texts) {
      GEMINID_RETURN_IF_ERROR(writing->WriteText(name, text));
    }
    for (const char* prefix : {kModelPrefix, kOptimizerPrefix}) {
      const std::string index = IndexText(inventory_->contents, prefix);
      if (index.empty()) continue;
      GEMINID_RETURN_IF_ERROR(
          writing->WriteText(absl::StrCat(prefix, ".safetensors.index.json"), index));
    }
    return absl::OkStatus();
  }

  // On a thread of its own: names the checkpoint when all ranks have written and synced everything.
  absl::StatusOr<std::string> Finish(uint64_t step, Health health, Writing* writing) {
    absl::Status status = state_->WaitSnapshot();
    if (status.ok()) status = writing->Finish(communicator_->Rank(), communicator_->WorldSize());
    status = Agree(communicator_.get(), Phase::kWritePart, step, status);
    is_disk_full_ = absl::IsResourceExhausted(status);
    if (leads() && status.ok()) {
      status = FinishStep(options_.folder, step, OlderOf(NameOfStep(step)));
    }
    if (!status.ok()) {
      GiveUp(step, writing);
    } else if (leads()) {
      status = Prune({NameOfStep(step), health == Health::kHealthy});
    }
    status = Agree(communicator_.get(), Phase::kFinish, step, status);
    if (!status.ok()) return status;
    return absl::StrCat(options_.folder, "/", NameOfStep(step));
  }

  // Called when a new checkpoint is complete, which is then the last candidate for removal.
  absl::Status Prune(const FinishedCheckpoint& saved) {
    std::erase_if(prunable_, [&](const auto& before) { return before.name == saved.name; });
    prunable_.push_back(saved);
    return RemovePrunable(ToPrune(prunable_, options_.keep));
  }

  zero::ModelState* const state_;
  const SaverOptions options_;
  std::unique_ptr<collectives::Communicator> communicator_;
  std::shared_ptr<const Inventory> inventory_;
  // Of the rank that leads; used by the thread while it runs. The checkpoints that pruning may
  // remove, first candidates first.
  std::vector<FinishedCheckpoint> prunable_;
  bool is_disk_full_ = false;
  bool gave_up_ = false;  // the last checkpoint was abandoned, and its snapshot may still run
  std::thread thread_;
  absl::StatusOr<std::string> result_ = std::string();  // set by the thread; valid after its end
  std::string last_;
};

Saver::Saver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Saver::~Saver() = default;

absl::StatusOr<std::unique_ptr<Saver>> Saver::Create(zero::ModelState* state,
                                                     collectives::Communicator* communicator,
                                                     std::vector<zero::Parameter> parameters,
                                                     SaverOptions options) {
  auto impl = std::make_unique<Impl>(state, std::move(options));
  GEMINID_RETURN_IF_ERROR(impl->Start(communicator, std::move(parameters)));
  return std::unique_ptr<Saver>(new Saver(std::move(impl)));
}

absl::Status Saver::Save(const RunState& run, Health health) { return impl_->Save(run, health); }

absl::StatusOr<std::string> Saver::Wait() { return impl_->Wait(); }

}  // namespace geminid::checkpoint
