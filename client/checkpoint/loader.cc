#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "client/checkpoint/agreement.h"
#include "client/checkpoint/checked_files.h"
#include "client/checkpoint/checksums.h"
#include "client/checkpoint/contents.h"
#include "client/checkpoint/newest.h"
#include "client/checkpoint/run_record.h"
#include "client/checkpoint/tensor_set.h"
#include "geminid/checkpoint.h"
#include "geminid/communicator.h"
#include "kernels/numeric/cast/cast.h"
#include "kernels/runtime/common/bfloat16.h"

namespace geminid::checkpoint {
namespace {

constexpr size_t kRecordBytesMax = size_t{1} << 20;
constexpr uint64_t kBlockElements = uint64_t{1} << 20;
constexpr uint64_t kMaxRanks = 65536;
constexpr char kChecksumsPrefix[] = "checksums-";
constexpr char kOtherOptimizerAdvice[] =
    "Train with that optimizer, or begin another run from the values alone";

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

absl::Status CheckFinite(const std::string& path, const std::string& tensor, uint64_t first,
                         std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    // The sign of a NaN means nothing.
    const std::string value = std::isnan(values[i]) ? "nan" : absl::StrCat(values[i]);
    return absl::DataLossError(absl::StrCat("'", path, "': tensor '", tensor,
                                            "' is not finite at element ", first + i, ": ", value));
  }
  return absl::OkStatus();
}

// Loads this rank's shard of a parameter's value.
absl::Status LoadValue(const TensorSet& set, const std::string& name,
                       const zero::Parameter& parameter, zero::ParameterId id,
                       zero::ModelState* state) {
  GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found found, FindOfShape(set, name, parameter));
  std::vector<float> values;
  for (const zero::ShardRange& range : state->ShardOf(id)) {
    for (uint64_t at = 0; at < range.elements; at += kBlockElements) {
      values.resize(std::min(kBlockElements, range.elements - at));
      GEMINID_RETURN_IF_ERROR(found.file->ReadFloats(*found.tensor, range.offset + at, values));
      GEMINID_RETURN_IF_ERROR(CheckFinite(found.file->path(), name, range.offset + at, values));
      GEMINID_RETURN_IF_ERROR(
          state->WriteShard(id, zero::StateKind::kMaster, range.offset + at, values));
    }
  }
  return absl::OkStatus();
}

// Moments of another type are not damage, and are never converted silently.
absl::Status CheckType(const TensorSet::Found& found, zero::StateKind kind,
                       zero::DataType state_type) {
  const auto& [file, tensor] = found;
  const ElementType expected = TypeInFiles(kind, state_type);
  if (tensor->type == expected) return absl::OkStatus();
  const bool could_be =
      tensor->type == ElementType::kFloat32 || tensor->type == ElementType::kBFloat16;
  if (kind == zero::StateKind::kMaster || !could_be) {
    return absl::DataLossError(absl::StrCat("'", file->path(), "': tensor '", tensor->name,
                                            "' has dtype ", tensor->type_name(), ", not ",
                                            Name(expected)));
  }
  const auto word = [](ElementType type) {
    return type == ElementType::kBFloat16 ? "bf16" : "fp32";
  };
  return absl::FailedPreconditionError(absl::StrCat(
      "'", file->path(), "' stores the optimizer's state in ", word(tensor->type),
      "; this run uses ", word(expected), " (Options::state_type, --state-dtype). Give ",
      word(tensor->type), " to go on, or begin another run from the values alone"));
}

// For files without checksums. Loads all tensors that exist before it reports a missing one.
absl::Status LoadUnchecked(const TensorSet& model, zero::ModelState* state,
                           const std::vector<zero::Parameter>& parameters,
                           const std::function<std::string(const zero::Parameter&)>& name_of) {
  absl::Status missing;
  for (uint32_t i = 0; i < parameters.size(); ++i) {
    const std::string name = name_of(parameters[i]);
    if (name.empty()) continue;
    if (const auto found = FindOfShape(model, name, parameters[i]); !found.ok()) {
      missing.Update(found.status());
      continue;
    }
    GEMINID_RETURN_IF_ERROR(LoadValue(model, name, parameters[i], zero::ParameterId{i}, state));
  }
  return missing;
}

// Says why a partly loaded state is of no use.
std::string WhyOfNoUse(const std::string& folder, const absl::Status& error) {
  return absl::StrCat("loading '", folder,
                      "' failed and has replaced some of the values: ", error.message(),
                      "; load another checkpoint, call Initialize, or end");
}

absl::StatusOr<RunRecord> ReadRecordOf(const std::string& folder) {
  const std::string path = absl::StrCat(folder, "/", kRecordName);
  GEMINID_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, kRecordBytesMax));
  absl::StatusOr<RunRecord> record = ReadRecord(text);
  if (!record.ok()) return Named(path, record.status());
  if (record->ranks == 0 || record->ranks > kMaxRanks) {
    return absl::DataLossError(
        absl::StrCat("'", path, "': it was saved by ", record->ranks,
                     " ranks, which is not possible; load another checkpoint"));
  }
  return record;
}

// The part of a checkpoint that is read, and therefore compared with its checksums.
enum class Extent { kAll, kValues };

// Leaves out the optimizer's files, which a load of values does not read.
CheckedFileRanges OfValues(const CheckedFileRanges& all) {
  CheckedFileRanges values;
  std::vector<std::optional<uint32_t>> numbers;
  for (const std::string& name : all.files) {
    const bool is_optimizers = name.starts_with(kOptimizerPrefix);
    numbers.push_back(is_optimizers ? std::nullopt
                                    : std::optional(static_cast<uint32_t>(values.files.size())));
    if (!is_optimizers) values.files.push_back(name);
  }
  for (CheckedRange piece : all.pieces) {
    const std::optional<uint32_t> number = numbers[piece.file];
    if (!number.has_value()) continue;
    piece.file = *number;
    values.pieces.push_back(piece);
  }
  return values;
}

absl::StatusOr<CheckedFiles> OpenChecked(const std::string& folder, const RunRecord& record,
                                         Extent extent) {
  GEMINID_ASSIGN_OR_RETURN(CheckedFileRanges all, ReadAllChecksums(folder, record.ranks));
  return CheckedFiles::Open(folder, extent == Extent::kAll ? std::move(all) : OfValues(all));
}

// Values of another origin come without checksums.
bool HasChecksums(const std::string& folder) {
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  return !error && std::any_of(begin(entry), end(entry), [](const auto& file) {
    return file.path().filename().string().starts_with(kChecksumsPrefix);
  });
}

// Loads a checkpoint into an engine. When only values are loaded, all existing tensors are checked
// before a missing one is reported: damaged bytes, which may include names, are then named as the
// cause.
class StateLoader {
 public:
  static absl::StatusOr<StateLoader> Open(const std::string& folder, Extent extent) {
    GEMINID_ASSIGN_OR_RETURN(RunRecord record, ReadRecordOf(folder));
    GEMINID_ASSIGN_OR_RETURN(CheckedFiles files, OpenChecked(folder, record, extent));
    GEMINID_RETURN_IF_ERROR(files.CheckBeginnings());  // before any header is trusted
    GEMINID_ASSIGN_OR_RETURN(TensorSet model, TensorSet::Open(folder, kModelPrefix));
    return StateLoader(folder, record, std::move(files), std::move(model));
  }

  // Checks that the checkpoint is of this model and optimizer. Changes nothing.
  absl::Status Prepare(const zero::ModelState& state,
                       const std::vector<zero::Parameter>& parameters) {
    if (!record_.optimizer.empty() && record_.optimizer != state.optimizer_name()) {
      return OfAnotherOptimizer(record_.optimizer, state.optimizer_name());
    }
    GEMINID_RETURN_IF_ERROR(CheckArrays(state, parameters));
    std::set<std::string> asked;
    for (uint32_t i = 0; i < parameters.size(); ++i) {
      asked.insert(parameters[i].name);
      for (zero::StateKind kind : zero::kStateKinds) {
        if (!state.HasState(zero::ParameterId{i}, kind)) continue;
        GEMINID_RETURN_IF_ERROR(
            Want(parameters[i].name, parameters[i], zero::ParameterId{i}, kind, state));
      }
    }
    for (const auto& [name, file] : model_.file_of()) {
      if (asked.contains(name)) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "'", folder_, "' has the parameter '", name,
          "', which the model does not have; load it into the model that saved it, or begin "
          "another run from the values alone"));
    }
    return absl::OkStatus();
  }

  // Call it after Prepare. When it has returned OK on all ranks, every byte matches its checksum.
  absl::StatusOr<zero::Progress> Load(int rank, int ranks, zero::ModelState* state) {
    GEMINID_RETURN_IF_ERROR(ReadInto(rank, ranks, state, /*checks_finite=*/false));
    GEMINID_ASSIGN_OR_RETURN(zero::Progress progress, state->GetProgress());
    progress.step = record_.step;
    progress.updates = record_.updates;
    progress.loss_scaler = record_.loss_scaler;
    GEMINID_RETURN_IF_ERROR(ReadTensorState(&progress.tensor_state));
    return progress;
  }

  // Called by this rank alone. Also reads the bytes outside of the requested tensors.
  absl::Status LoadValues(zero::ModelState* state, const std::vector<zero::Parameter>& parameters,
                          const std::function<std::string(const zero::Parameter&)>& name_of) {
    absl::Status missing;
    for (uint32_t i = 0; i < parameters.size(); ++i) {
      const std::string name = name_of(parameters[i]);
      if (name.empty()) continue;
      missing.Update(
          Want(name, parameters[i], zero::ParameterId{i}, zero::StateKind::kMaster, *state));
    }
    GEMINID_RETURN_IF_ERROR(ReadInto(0, 1, state, /*checks_finite=*/true));
    return missing;
  }

  const RunState& run() const { return record_.run; }
  uint64_t step() const { return record_.step; }

 private:
  // Where a range of a tensor goes in the engine.
  struct Place {
    FileRange bytes;
    zero::ParameterId id;
    zero::StateKind kind;
    ElementType type;
    uint64_t element;
    std::string path;  // of the file
    std::string tensor;
  };

  StateLoader(std::string folder, RunRecord record, CheckedFiles files, TensorSet model)
      : folder_(std::move(folder)),
        record_(std::move(record)),
        files_(std::move(files)),
        model_(std::move(model)) {}

  absl::StatusOr<const TensorSet*> SetOf(zero::StateKind kind) {
    if (kind == zero::StateKind::kMaster) return &model_;
    if (!optimizer_.has_value()) {
      GEMINID_ASSIGN_OR_RETURN(optimizer_, TensorSet::Open(folder_, kOptimizerPrefix));
    }
    return &*optimizer_;
  }

  // Fails if the checkpoint has state that this run's optimizer lacks, even if it also has all that
  // this one needs. A parameter that is frozen now may have been trained.
  absl::Status CheckArrays(const zero::ModelState& state,
                           const std::vector<zero::Parameter>& parameters) {
    const std::string file = absl::StrCat(folder_, "/", kOptimizerPrefix, ".safetensors");
    std::error_code error;
    if (!std::filesystem::exists(file, error) &&
        !std::filesystem::exists(file + ".index.json", error)) {
      return absl::OkStatus();
    }
    GEMINID_ASSIGN_OR_RETURN(const TensorSet* const set, SetOf(zero::StateKind::kExpAvg));
    for (uint32_t i = 0; i < parameters.size(); ++i) {
      if (!parameters[i].trainable) continue;
      for (const zero::StateKind kind : zero::kStateKinds) {
        const std::string name = TensorName(parameters[i].name, kind);
        if (kind == zero::StateKind::kMaster || state.HasState(zero::ParameterId{i}, kind) ||
            !set->file_of().contains(name)) {
          continue;
        }
        return HasArrayOfAnother(name);
      }
    }
    return absl::OkStatus();
  }

  absl::Status HasArrayOfAnother(const std::string& tensor) const {
    return absl::FailedPreconditionError(
        absl::StrCat("'", folder_, "': a different optimizer saved it, as its tensor '", tensor,
                     "' shows. ", kOtherOptimizerAdvice));
  }

  absl::Status OfAnotherOptimizer(const std::string& saved, const char* own) const {
    return absl::FailedPreconditionError(
        absl::StrCat("'", folder_, "': a different optimizer saved it: ", saved, "; this run has ",
                     own, ". ", kOtherOptimizerAdvice));
  }

  // `called`: the parameter's name in the files.
  absl::Status Want(const std::string& called, const zero::Parameter& parameter,
                    zero::ParameterId id, zero::StateKind kind, const zero::ModelState& state) {
    GEMINID_ASSIGN_OR_RETURN(const TensorSet* const set, SetOf(kind));
    const std::string name = TensorName(called, kind);
    GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found found, FindOfShape(*set, name, parameter));
    const auto& [file, tensor] = found;
    GEMINID_RETURN_IF_ERROR(CheckType(found, kind, state.state_type()));
    GEMINID_ASSIGN_OR_RETURN(const uint32_t number,
                             files_.Find(file->path().substr(folder_.size() + 1)));
    const uint64_t begin = file->PlaceOf(*tensor, 0);
    tensors_.push_back({{number, begin, begin + tensor->bytes}, name});
    for (const zero::ShardRange& range : state.ShardOf(id)) {
      const uint64_t at = file->PlaceOf(*tensor, range.offset);
      places_.push_back({{number, at, at + range.elements * SizeOf(tensor->type)},
                         id,
                         kind,
                         tensor->type,
                         range.offset,
                         file->path(),
                         name});
    }
    return absl::OkStatus();
  }

  // `checks_finite` is false for a run that resumes, whose values may be any.
  absl::Status ReadInto(int rank, int ranks, zero::ModelState* state, bool checks_finite) {
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
      const size_t size = SizeOf(place.type);
      const bool is_cut = offset % size != 0 || bytes.size() % size != 0 ||
                          reinterpret_cast<uintptr_t>(bytes.data()) % size != 0;
      if (is_cut) {
        return absl::DataLossError(absl::StrCat("'", folder_,
                                                "' has checksums that begin or end inside a "
                                                "number: the list of checksums was altered"));
      }
      const uint64_t element = place.element + offset / size;
      if (place.type == ElementType::kBFloat16) {
        std::vector<float> widened(bytes.size() / size);
        (void)kernels::CastToFloat(reinterpret_cast<const kernels::BFloat16*>(bytes.data()),
                                   widened.size(), widened.data());
        return state->WriteShard(place.id, place.kind, element, widened);
      }
      const std::span values(reinterpret_cast<const float*>(bytes.data()), bytes.size() / size);
      if (checks_finite) {
        GEMINID_RETURN_IF_ERROR(CheckFinite(place.path, place.tensor, element, values));
      }
      return state->WriteShard(place.id, place.kind, element, values);
    };
    return files_.Read(reading);
  }

  absl::Status ReadTensorState(std::vector<std::byte>* state) {
    const bool is_there =
        optimizer_.has_value() && optimizer_->file_of().contains(kTensorStateName);
    if (state->empty()) return is_there ? HasArrayOfAnother(kTensorStateName) : absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const TensorSet* const set, SetOf(zero::StateKind::kExpAvg));
    GEMINID_ASSIGN_OR_RETURN(const TensorSet::Found found, set->Find(kTensorStateName));
    if (found.tensor->bytes != state->size()) {
      return HasArrayOfAnother(kTensorStateName);
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

}  // namespace

absl::StatusOr<std::string> Newest(const std::string& folder) {
  GEMINID_ASSIGN_OR_RETURN(ChosenCheckpoint chosen, ChooseNewest(folder));
  return std::move(chosen.path);
}

absl::StatusOr<Loaded> Load(const std::string& folder, zero::ModelState* state,
                            collectives::Communicator* communicator,
                            const std::vector<zero::Parameter>& parameters) {
  Loaded loaded;
  const auto open = [&]() -> absl::StatusOr<StateLoader> {
    GEMINID_ASSIGN_OR_RETURN(loaded.folder, Newest(folder));
    return StateLoader::Open(loaded.folder, Extent::kAll);
  };
  absl::StatusOr<StateLoader> loader = open();
  const uint64_t step = loader.ok() ? loader->step() : kNoStep;
  // A load that is refused here has changed nothing, and the run can go on.
  absl::Status prepared = loader.status();
  if (prepared.ok()) prepared = state->GetProgress().status();  // only between steps
  if (prepared.ok()) prepared = loader->Prepare(*state, parameters);
  GEMINID_RETURN_IF_ERROR(Agree(communicator, Phase::kOpen, step, prepared));

  const auto load = [&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(loaded.progress,
                             loader->Load(communicator->Rank(), communicator->WorldSize(), state));
    loaded.run = loader->run();
    return absl::OkStatus();
  };
  absl::Status done = Agree(communicator, Phase::kLoad, step, load());
  if (done.ok()) {
    done = Agree(communicator, Phase::kRestore, step, state->Restore(loaded.progress));
  }
  if (done.ok()) return loaded;
  state->Invalidate(WhyOfNoUse(loaded.folder, done));
  return done;
}

absl::Status LoadValues(const std::string& folder, zero::ModelState* state,
                        const std::vector<zero::Parameter>& parameters,
                        const std::function<std::string(const zero::Parameter&)>& name_of) {
  GEMINID_ASSIGN_OR_RETURN(const std::string values, FolderOfValues(folder));
  absl::Status loaded;
  if (HasChecksums(values)) {
    GEMINID_ASSIGN_OR_RETURN(StateLoader loader, StateLoader::Open(values, Extent::kValues));
    loaded = loader.LoadValues(state, parameters, name_of);
  } else {
    GEMINID_ASSIGN_OR_RETURN(const TensorSet model, TensorSet::Open(values, kModelPrefix));
    loaded = LoadUnchecked(model, state, parameters, name_of);
  }
  if (!loaded.ok()) state->Invalidate(WhyOfNoUse(values, loaded));
  return loaded;
}

}  // namespace geminid::checkpoint
