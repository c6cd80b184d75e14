#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "client/checkpoint/agreement.h"
#include "client/checkpoint/checked_files.h"
#include "client/checkpoint/checksums.h"
#include "client/checkpoint/contents.h"
#include "client/checkpoint/folder.h"
#include "client/checkpoint/run_record.h"
#include "client/checkpoint/tensor_file.h"
#include "geminid/checkpoint.h"
#include "geminid/communicator.h"

namespace geminid::checkpoint {
namespace {

constexpr size_t kMaxTextBytes = size_t{256} << 20;  // an index of a million tensors
constexpr uint64_t kBlockElements = uint64_t{1} << 20;
constexpr uint64_t kMaxRanks = 65536;

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// The tensors of one prefix in a folder, in one file or several; files are opened as needed.
class TensorSet {
 public:
  static absl::StatusOr<TensorSet> Open(const std::string& folder, const std::string& prefix) {
    TensorSet set(folder);
    const std::string index = absl::StrCat(folder, "/", prefix, ".safetensors.index.json");
    if (!Exists(index)) {
      const std::string only = absl::StrCat(prefix, ".safetensors");
      GEMINID_RETURN_IF_ERROR(set.OpenFile(only));
      for (const TensorEntry& tensor : set.files_.at(only).header().tensors) {
        set.file_of_[tensor.name] = only;
      }
      return set;
    }
    GEMINID_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(index, kMaxTextBytes));
    absl::StatusOr<std::map<std::string, std::string>> files = ReadIndex(text);
    if (!files.ok()) return Named(index, files.status());
    set.file_of_ = *std::move(files);
    for (const auto& [tensor, file] : set.file_of_) {
      if (!set.files_.contains(file)) GEMINID_RETURN_IF_ERROR(set.OpenFile(file));
    }
    return set;
  }

  struct Found {
    const TensorFile* file = nullptr;
    const TensorEntry* tensor = nullptr;
  };

  // DATA_LOSS when it is not there, naming tensors that are.
  absl::StatusOr<Found> Find(const std::string& name) const {
    const auto in = file_of_.find(name);
    const TensorFile* file = in == file_of_.end() ? nullptr : &files_.at(in->second);
    const auto& entries = entries_;
    const auto entry = file == nullptr ? entries.end() : entries.find({in->second, name});
    if (entry != entries.end()) return Found{file, entry->second};
    constexpr size_t kExamples = 3;
    std::vector<std::string> examples;
    for (const auto& [known, unused] : file_of_) {
      if (examples.size() < kExamples) examples.push_back(absl::StrCat("'", known, "'"));
    }
    return absl::DataLossError(absl::StrCat("'", folder_, "' has no tensor '", name, "'; it has ",
                                            file_of_.size(), ", among them ",
                                            absl::StrJoin(examples, ", ")));
  }

 private:
  explicit TensorSet(std::string folder) : folder_(std::move(folder)) {}

  absl::Status OpenFile(const std::string& name) {
    absl::StatusOr<TensorFile> file = TensorFile::OpenToRead(absl::StrCat(folder_, "/", name));
    if (!file.ok()) return file.status();
    const TensorFile& kept = files_.emplace(name, *std::move(file)).first->second;
    for (const TensorEntry& tensor : kept.header().tensors) {
      entries_[{name, tensor.name}] = &tensor;
    }
    return absl::OkStatus();
  }

  std::string folder_;
  std::map<std::string, TensorFile> files_;
  std::map<std::pair<std::string, std::string>, const TensorEntry*> entries_;
  std::map<std::string, std::string> file_of_;
};

std::string ShapeText(std::span<const uint64_t> shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<TensorSet::Found> FindOfShape(const TensorSet& set, const std::string& name,
                                             const zero::Parameter& parameter) {
  GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found found, set.Find(name));
  const std::vector<uint64_t> shape(parameter.shape.begin(), parameter.shape.end());
  if (found.tensor->shape == shape) return found;
  return absl::DataLossError(absl::StrCat("'", found.file->path(), "': tensor '", name,
                                          "' has the shape ", ShapeText(found.tensor->shape),
                                          "; the model's is ", ShapeText(shape)));
}

absl::Status CheckFinite(const TensorSet::Found& found, uint64_t first,
                         std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return absl::DataLossError(absl::StrCat("'", found.file->path(), "': tensor '",
                                            found.tensor->name, "' is not finite at element ",
                                            first + i, ": ", values[i]));
  }
  return absl::OkStatus();
}

// This rank's shard of a parameter's value.
absl::Status LoadValue(const TensorSet& set, const std::string& name,
                       const zero::Parameter& parameter, zero::ParameterId id,
                       zero::ModelState* state) {
  GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found found, FindOfShape(set, name, parameter));
  std::vector<float> values;
  for (const zero::ShardRange& range : state->ShardOf(id)) {
    for (uint64_t at = 0; at < range.elements; at += kBlockElements) {
      values.resize(std::min(kBlockElements, range.elements - at));
      GEMINID_RETURN_IF_ERROR(found.file->ReadFloats(*found.tensor, range.offset + at, values));
      GEMINID_RETURN_IF_ERROR(CheckFinite(found, range.offset + at, values));
      GEMINID_RETURN_IF_ERROR(
          state->WriteShard(id, zero::StateKind::kMaster, range.offset + at, values));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<RunRecord> ReadRecordOf(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kRecordName);
  GEMINID_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, kMaxTextBytes));
  absl::StatusOr<RunRecord> record = ReadRecord(text);
  if (!record.ok()) return Named(path, record.status());
  if (record->ranks == 0 || record->ranks > kMaxRanks) {
    return absl::DataLossError(
        absl::StrCat("'", path, "': it was saved by ", record->ranks, " ranks, which cannot be"));
  }
  return record;
}

absl::StatusOr<CheckedFiles> OpenChecked(const std::string& folder, const RunRecord& record) {
  ReadPieces all;
  for (uint64_t writer = 0; writer < record.ranks; ++writer) {
    const std::string name =
        ChecksumsName(static_cast<int>(writer), static_cast<int>(record.ranks));
    GEMINID_ASSIGN_OR_RETURN(ReadPieces read, ReadChecksums(absl::StrCat(folder, "/", name)));
    // The first rank alone wrote the small files, and so names more.
    if (read.files.size() > all.files.size()) all.files = std::move(read.files);
    all.pieces.insert(all.pieces.end(), read.pieces.begin(), read.pieces.end());
  }
  return CheckedFiles::Open(folder, std::move(all));
}

// A checkpoint on its way into an engine.
class StateLoader {
 public:
  static absl::StatusOr<StateLoader> Open(const std::string& folder) {
    GEMINID_ASSIGN_OR_RETURN(RunRecord record, ReadRecordOf(folder));
    GEMINID_ASSIGN_OR_RETURN(CheckedFiles files, OpenChecked(folder, record));
    GEMINID_RETURN_IF_ERROR(files.CheckBeginnings());  // before the headers are believed
    GEMINID_ASSIGN_OR_RETURN(TensorSet model, TensorSet::Open(folder, kModelPrefix));
    return StateLoader(folder, record, std::move(files), std::move(model));
  }

  // Everything is compared with its checksum when this has returned OK on all ranks.
  absl::StatusOr<zero::Progress> Load(int rank, int ranks, zero::ModelState* state,
                                      const std::vector<zero::Parameter>& parameters) {
    for (uint32_t i = 0; i < parameters.size(); ++i) {
      for (zero::StateKind kind : zero::kStateKinds) {
        if (!state->HasState(zero::ParameterId{i}, kind)) continue;
        GEMINID_RETURN_IF_ERROR(Want(parameters[i], zero::ParameterId{i}, kind, *state));
      }
    }
    GEMINID_RETURN_IF_ERROR(ReadInto(rank, ranks, state));
    GEMINID_ASSIGN_OR_RETURN(zero::Progress progress, state->GetProgress());
    progress.step = record_.step;
    progress.updates = record_.updates;
    progress.loss_scaler = record_.loss_scaler;
    GEMINID_RETURN_IF_ERROR(ReadTensorState(&progress.tensor_state));
    return progress;
  }

  const RunState& run() const { return record_.run; }

 private:
  // What of a tensor goes to where in the engine.
  struct Place {
    FileRange bytes;
    zero::ParameterId id;
    zero::StateKind kind;
    uint64_t element;
  };

  StateLoader(std::string folder, RunRecord record, CheckedFiles files, TensorSet model)
      : folder_(std::move(folder)),
        record_(record),
        files_(std::move(files)),
        model_(std::move(model)) {}

  absl::StatusOr<const TensorSet*> SetOf(zero::StateKind kind) {
    if (kind == zero::StateKind::kMaster) return &model_;
    if (!optimizer_.has_value()) {
      GEMINID_ASSIGN_OR_RETURN(optimizer_, TensorSet::Open(folder_, kOptimizerPrefix));
    }
    return &*optimizer_;
  }

  absl::Status Want(const zero::Parameter& parameter, zero::ParameterId id, zero::StateKind kind,
                    const zero::ModelState& state) {
    GEMINID_ASSIGN_OR_RETURN(const TensorSet* const set, SetOf(kind));
    const std::string name = TensorName(parameter.name, kind);
    GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found found, FindOfShape(*set, name, parameter));
    const auto& [file, tensor] = found;
    if (tensor->type != ElementType::kFloat32) {
      return absl::DataLossError(absl::StrCat("'", file->path(), "': tensor '", name,
                                              "' has dtype ", tensor->type_name(), ", not F32"));
    }
    GEMINID_ASSIGN_OR_RETURN(const uint32_t number,
                             files_.Find(file->path().substr(folder_.size() + 1)));
    const uint64_t begin = file->PlaceOf(*tensor, 0);
    tensors_.push_back({{number, begin, begin + tensor->bytes}, name});
    for (const zero::ShardRange& range : state.ShardOf(id)) {
      const uint64_t at = file->PlaceOf(*tensor, range.offset);
      places_.push_back(
          {{number, at, at + range.elements * sizeof(float)}, id, kind, range.offset});
    }
    return absl::OkStatus();
  }

  absl::Status ReadInto(int rank, int ranks, zero::ModelState* state) {
    const auto place_of = [](const FileRange& bytes) { return std::pair(bytes.file, bytes.begin); };
    std::ranges::sort(tensors_, {}, [&](const auto& tensor) { return place_of(tensor.bytes); });
    std::ranges::sort(places_, {}, [&](const Place& place) { return place_of(place.bytes); });
    CheckedFiles::Reading reading;
    reading.rank = rank;
    reading.ranks = ranks;
    reading.tensors = std::move(tensors_);
    for (const Place& place : places_) reading.wanted.push_back(place.bytes);
    reading.take = [&](size_t i, uint64_t offset,
                       std::span<const std::byte> bytes) -> absl::Status {
      const Place& place = places_[i];
      const bool is_cut = offset % sizeof(float) != 0 || bytes.size() % sizeof(float) != 0 ||
                          reinterpret_cast<uintptr_t>(bytes.data()) % alignof(float) != 0;
      if (is_cut) {
        return absl::DataLossError(
            absl::StrCat("'", folder_, "' has checksums of parts of numbers: they were altered"));
      }
      return state->WriteShard(
          place.id, place.kind, place.element + offset / sizeof(float),
          {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)});
    };
    return files_.Read(reading);
  }

  absl::Status ReadTensorState(std::vector<std::byte>* state) {
    if (state->empty()) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const TensorSet* const set, SetOf(zero::StateKind::kExpAvg));
    GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found found, set->Find(kTensorStateName));
    if (found.tensor->bytes != state->size()) {
      return absl::DataLossError(
          absl::StrCat("'", found.file->path(), "' was saved by another optimizer"));
    }
    return found.file->Read(found.file->PlaceOf(*found.tensor, 0), *state);
  }

  std::string folder_;
  RunRecord record_;
  CheckedFiles files_;
  TensorSet model_;
  std::optional<TensorSet> optimizer_;
  std::vector<CheckedFiles::Tensor> tensors_;
  std::vector<Place> places_;
};

// Where the values lie: in the folder itself, or in the newest of the checkpoints in it.
absl::StatusOr<std::string> FolderOfValues(const std::string& folder) {
  constexpr char kWhatToGive[] =
      "give the folder of a checkpoint, of several, or of a Hugging Face model";
  struct stat found = {};
  if (::stat(folder.c_str(), &found) != 0) return base::SystemError(errno, "look it up", folder);
  if (!S_ISDIR(found.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", folder, "' is not a folder; ", kWhatToGive));
  }
  const std::string weights = absl::StrCat(kModelPrefix, ".safetensors");
  if (Exists(absl::StrCat(folder, "/", weights)) ||
      Exists(absl::StrCat(folder, "/", weights, ".index.json"))) {
    return folder;
  }
  GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> names, FinishedIn(folder));
  if (!names.empty()) return absl::StrCat(folder, "/", names.back());
  return absl::NotFoundError(absl::StrCat("'", folder, "' has no ", weights, "; ", kWhatToGive));
}

}  // namespace

absl::StatusOr<std::string> Newest(const std::string& folder) {
  if (Exists(absl::StrCat(folder, "/", kRecordName))) return folder;
  GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> names, FinishedIn(folder));
  if (names.empty()) {
    return absl::NotFoundError(absl::StrCat("'", folder, "' holds no checkpoint: it has neither ",
                                            kRecordName, " nor folders called ", NameOfStep(0)));
  }
  return absl::StrCat(folder, "/", names.back());
}

absl::StatusOr<Loaded> Load(const std::string& folder, zero::ModelState* state,
                            collectives::Communicator* communicator,
                            const std::vector<zero::Parameter>& parameters) {
  Loaded loaded;
  const auto load = [&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(loaded.folder, Newest(folder));
    GEMINID_ASSIGN_OR_RETURN(StateLoader loader, StateLoader::Open(loaded.folder));
    GEMINID_ASSIGN_OR_RETURN(
        loaded.progress,
        loader.Load(communicator->Rank(), communicator->WorldSize(), state, parameters));
    loaded.run = loader.run();
    return absl::OkStatus();
  };
  absl::Status status = Agree(communicator, load(), "to load the checkpoint");
  if (!status.ok()) return status;
  GEMINID_RETURN_IF_ERROR(state->Restore(loaded.progress));
  return loaded;
}

absl::Status LoadValues(const std::string& folder, zero::ModelState* state,
                        const std::vector<zero::Parameter>& parameters,
                        const std::function<std::string(const zero::Parameter&)>& name_of) {
  GEMINID_ASSIGN_OR_RETURN(const std::string values, FolderOfValues(folder));
  GEMINID_ASSIGN_OR_RETURN(const TensorSet model, TensorSet::Open(values, kModelPrefix));
  for (uint32_t i = 0; i < parameters.size(); ++i) {
    const std::string name = name_of(parameters[i]);
    if (name.empty()) continue;
    GEMINID_RETURN_IF_ERROR(LoadValue(model, name, parameters[i], zero::ParameterId{i}, state));
  }
  return absl::OkStatus();
}

}  // namespace geminid::checkpoint
