#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/checkpoint/agreement.h"
#include "client/checkpoint/contents.h"
#include "client/checkpoint/folder.h"
#include "client/checkpoint/tensor_file.h"
#include "geminid/checkpoint.h"
#include "geminid/communicator.h"
#include "kernels/numeric/cast/cast.h"

namespace geminid::checkpoint {
namespace {

// Larger numbers would round to 65536, which fp16 does not have.
constexpr float kFloat16Limit = 65520;
// Larger numbers would round to infinity.
constexpr float kBFloat16Limit = 0x1.ffp127F;

absl::Status CheckBelow(std::span<const float> values, float limit, const std::string& tensor,
                        const char* type, const char* larger_type) {
  for (const float value : values) {
    if (!std::isfinite(value) || std::abs(value) < limit) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor '", tensor, "' has the value ", value,
                                                   ", which ", type, " cannot hold; export it as ",
                                                   larger_type));
  }
  return absl::OkStatus();
}

ElementType ElementTypeOf(ExportType type) {
  switch (type) {
    case ExportType::kBFloat16:
      return ElementType::kBFloat16;
    case ExportType::kFloat16:
      return ElementType::kFloat16;
    default:
      return ElementType::kFloat32;
  }
}

// A parameter to export, with its name in the files.
struct Exported {
  zero::ParameterId id{};
  TensorEntry entry;
};

std::vector<Exported> Choose(const ExportOptions& options,
                             const std::vector<zero::Parameter>& parameters) {
  std::vector<Exported> chosen;
  for (uint32_t i = 0; i < parameters.size(); ++i) {
    TensorEntry entry;
    entry.name = options.name_of ? options.name_of(parameters[i]) : parameters[i].name;
    if (entry.name.empty()) continue;
    entry.type = parameters[i].data_type == zero::DataType::kFloat32 ? ElementType::kFloat32
                                                                     : ElementTypeOf(options.type);
    entry.bytes = SizeOf(entry.type);
    for (const int64_t dimension : parameters[i].shape) {
      entry.shape.push_back(static_cast<uint64_t>(dimension));
      entry.bytes *= entry.shape.back();
    }
    chosen.push_back({zero::ParameterId{i}, std::move(entry)});
  }
  return chosen;
}

// The files that one rank writes.
class Files {
 public:
  absl::Status Create(const ExportOptions& options, const std::vector<Exported>& exported) {
    std::vector<TensorEntry> entries;
    entries.reserve(exported.size());
    for (const Exported& tensor : exported) entries.push_back(tensor.entry);
    GEMINID_ASSIGN_OR_RETURN(contents_, PlanModel(std::move(entries), options.max_file_bytes));
    GEMINID_ASSIGN_OR_RETURN(const std::string folder, BeginFolder(options.folder));
    for (const PlannedFile& planned : contents_.files) {
      absl::StatusOr<TensorFile> file =
          TensorFile::Create(absl::StrCat(folder, "/", planned.name), planned.header);
      if (!file.ok()) return file.status();
      files_.push_back(*std::move(file));
    }
    for (const auto& [name, text] : options.texts) {
      GEMINID_RETURN_IF_ERROR(WriteNewFile(absl::StrCat(folder, "/", name), text));
    }
    const std::string index = IndexText(contents_, kModelPrefix);
    if (index.empty()) return absl::OkStatus();
    return WriteNewFile(absl::StrCat(folder, "/", kModelPrefix, ".safetensors.index.json"), index);
  }

  absl::Status Write(const TensorEntry& tensor, std::span<const float> values) {
    const TensorPlace place = contents_.places.at(tensor.name);
    const TensorFile& file = files_[place.file];
    const uint64_t offset = file.PlaceOf(file.header().tensors[place.entry], 0);
    switch (tensor.type) {
      case ElementType::kBFloat16: {
        GEMINID_RETURN_IF_ERROR(CheckBelow(values, kBFloat16Limit, tensor.name, "bf16", "fp32"));
        std::vector<kernels::BFloat16> halves(values.size());
        (void)kernels::CastToBFloat16(values.data(), values.size(), halves.data());
        return file.Write(offset, std::as_bytes(std::span(halves)));
      }
      case ElementType::kFloat16: {
        GEMINID_RETURN_IF_ERROR(
            CheckBelow(values, kFloat16Limit, tensor.name, "fp16", "bf16 or fp32"));
        std::vector<kernels::Float16> halves(values.size());
        (void)kernels::CastToFloat16(values.data(), values.size(), halves.data());
        return file.Write(offset, std::as_bytes(std::span(halves)));
      }
      default:
        return file.Write(offset, std::as_bytes(values));
    }
  }

  absl::Status Finish(const std::string& folder) {
    for (const TensorFile& file : files_) GEMINID_RETURN_IF_ERROR(file.Sync());
    files_.clear();
    return FinishFolder(folder);
  }

 private:
  Contents contents_;
  std::vector<TensorFile> files_;
};

// All ranks read all parameters even if writing fails, so that no rank waits for another. `files`:
// null except on the rank that writes.
absl::Status ReadAll(const ExportOptions& options, const std::vector<Exported>& exported,
                     zero::ModelState* state, Files* files) {
  absl::Status kept;
  for (const Exported& tensor : exported) {
    GEMINID_ASSIGN_OR_RETURN(std::vector<float> values, state->ReadParameter(tensor.id));
    if (options.adjust) kept.Update(options.adjust(tensor.id, &values));
    if (files != nullptr && kept.ok()) kept = files->Write(tensor.entry, values);
  }
  return kept;
}

}  // namespace

absl::Status ExportValues(const ExportOptions& options, zero::ModelState* state,
                          collectives::Communicator* communicator,
                          const std::vector<zero::Parameter>& parameters) {
  const std::vector<Exported> exported = Choose(options, parameters);
  const bool leads = communicator->Rank() == 0;
  const absl::StatusOr<zero::Progress> progress = state->GetProgress();
  const uint64_t step = progress.ok() ? progress->step : kNoStep;
  Files files;
  absl::Status mine = progress.status();
  if (mine.ok() && leads) mine = files.Create(options, exported);
  const bool exists = absl::IsAlreadyExists(mine);
  absl::Status status = Agree(communicator, Phase::kBeginExport, step, mine);
  if (status.ok()) {
    mine = ReadAll(options, exported, state, leads ? &files : nullptr);
    status = Agree(communicator, Phase::kExport, step, mine);
    if (status.ok()) {
      status = Agree(communicator, Phase::kFinishExport, step,
                     leads ? files.Finish(options.folder) : absl::OkStatus());
    }
  }
  if (leads && !status.ok() && !exists) AbandonFolder(options.folder);
  return status;
}

}  // namespace geminid::checkpoint
