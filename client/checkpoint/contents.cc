#include "client/checkpoint/contents.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/printable.h"
#include "base/status_macros.h"

namespace geminid::checkpoint {
namespace {

using zero::StateKind;

TensorEntry EntryOf(const zero::Parameter& parameter, StateKind kind, zero::DataType state_type) {
  TensorEntry entry;
  entry.name = TensorName(parameter.name, kind);
  entry.type = TypeInFiles(kind, state_type);
  entry.bytes = SizeOf(entry.type);
  for (int64_t dimension : parameter.shape) {
    entry.shape.push_back(static_cast<uint64_t>(dimension));
    entry.bytes *= entry.shape.back();
  }
  return entry;
}

// Divides tensors in order into files: a new one whenever the next tensor would exceed the limit.
std::vector<std::vector<TensorEntry>> Cut(std::vector<TensorEntry> tensors, uint64_t max_bytes) {
  std::vector<std::vector<TensorEntry>> files;
  uint64_t bytes = 0;
  for (TensorEntry& tensor : tensors) {
    if (files.empty() || bytes + tensor.bytes > max_bytes) {
      files.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes;
    files.back().push_back(std::move(tensor));
  }
  return files;
}

absl::Status AddFiles(const std::string& prefix, std::vector<TensorEntry> tensors,
                      uint64_t max_bytes, Contents* contents) {
  std::vector<std::vector<TensorEntry>> groups = Cut(std::move(tensors), max_bytes);
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string name = groups.size() == 1 ? absl::StrCat(prefix, ".safetensors")
                                                : absl::StrFormat("%s-%05d-of-%05d.safetensors",
                                                                  prefix, i + 1, groups.size());
    GEMINID_ASSIGN_OR_RETURN(Header header, LayOut(std::move(groups[i]), {{"format", "pt"}}));
    const auto file = static_cast<uint32_t>(contents->files.size());
    for (uint32_t entry = 0; entry < header.tensors.size(); ++entry) {
      contents->places[header.tensors[entry].name] = {file, entry};
    }
    contents->files.push_back({name, std::move(header)});
  }
  return absl::OkStatus();
}

// safetensors takes any text in UTF-8 but one word. Control characters are mistakes.
absl::Status CheckName(const std::string& name) {
  bool is_good = !name.empty() && name != kMetadataKey;
  for (size_t at = 0; at < name.size() && is_good;) {
    const base::Character character = base::CharacterAt(name, at);
    is_good = character.is_printable;
    at += character.bytes;
  }
  if (is_good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a parameter called '", base::Printable(name),
                                                 "' cannot be saved; names must be printable "
                                                 "UTF-8, not empty and not '",
                                                 kMetadataKey, "'"));
}

}  // namespace

absl::Status CheckNames(const std::vector<zero::Parameter>& parameters) {
  for (const zero::Parameter& parameter : parameters) {
    GEMINID_RETURN_IF_ERROR(CheckName(parameter.name));
  }
  return absl::OkStatus();
}

ElementType TypeInFiles(StateKind kind, zero::DataType state_type) {
  const bool small = kind != StateKind::kMaster && state_type == zero::DataType::kBFloat16;
  return small ? ElementType::kBFloat16 : ElementType::kFloat32;
}

std::string TensorName(const std::string& parameter, StateKind kind) {
  switch (kind) {
    case StateKind::kExpAvg:
      return absl::StrCat("exp_avg.", parameter);
    case StateKind::kExpAvgSq:
      return absl::StrCat("exp_avg_sq.", parameter);
    default:
      return parameter;
  }
}

absl::StatusOr<Contents> PlanContents(
    const std::vector<zero::Parameter>& parameters,
    const std::function<bool(zero::ParameterId, StateKind)>& has_state, zero::DataType state_type,
    uint64_t tensor_state_bytes, uint64_t max_file_bytes) {
  GEMINID_RETURN_IF_ERROR(CheckNames(parameters));
  std::vector<TensorEntry> values;
  std::vector<TensorEntry> states;
  for (uint32_t id = 0; id < parameters.size(); ++id) {
    values.push_back(EntryOf(parameters[id], StateKind::kMaster, state_type));
    for (StateKind kind : {StateKind::kExpAvg, StateKind::kExpAvgSq}) {
      if (!has_state(zero::ParameterId{id}, kind)) continue;
      states.push_back(EntryOf(parameters[id], kind, state_type));
    }
  }
  if (tensor_state_bytes > 0) {
    states.push_back({.name = kTensorStateName,
                      .type = ElementType::kUint8,
                      .shape = {tensor_state_bytes},
                      .bytes = tensor_state_bytes});
  }
  Contents contents;
  GEMINID_RETURN_IF_ERROR(AddFiles(kModelPrefix, std::move(values), max_file_bytes, &contents));
  GEMINID_RETURN_IF_ERROR(AddFiles(kOptimizerPrefix, std::move(states), max_file_bytes, &contents));
  return contents;
}

absl::StatusOr<Contents> PlanModel(std::vector<TensorEntry> tensors, uint64_t max_file_bytes) {
  for (const TensorEntry& tensor : tensors) GEMINID_RETURN_IF_ERROR(CheckName(tensor.name));
  Contents contents;
  GEMINID_RETURN_IF_ERROR(AddFiles(kModelPrefix, std::move(tensors), max_file_bytes, &contents));
  return contents;
}

std::string IndexText(const Contents& contents, const std::string& prefix) {
  const std::string numbered = absl::StrCat(prefix, "-");
  uint64_t bytes = 0;
  base::JsonWriter json;
  for (const PlannedFile& file : contents.files) {
    if (file.name.starts_with(numbered)) bytes += file.header.data_bytes;
  }
  if (bytes == 0) return "";
  json.BeginObject().Key("metadata").BeginObject().Key("total_size").Value(bytes).EndObject();
  json.Key("weight_map").BeginObject();
  for (const auto& [name, place] : contents.places) {
    const std::string& file = contents.files[place.file].name;
    if (file.starts_with(numbered)) json.Key(name).Value(file);
  }
  json.EndObject().EndObject();
  return json.text() + "\n";
}

absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& text) {
  base::JsonValue root;
  base::JsonError error;
  if (!base::ParsePythonJson(text, &root, &error)) {
    return absl::DataLossError(absl::StrCat("line ", error.position.line, ", column ",
                                            error.position.column, ": ", error.problem));
  }
  for (const base::JsonValue::Member& member : root.members) {
    if (member.key != "weight_map") continue;
    std::map<std::string, std::string> files;
    for (const base::JsonValue::Member& entry : member.value.members) {
      const std::string& file = entry.value.text;
      const bool plain = !file.empty() && file.find('/') == std::string::npos && file[0] != '.';
      if (entry.value.type != base::JsonValue::Type::kString || !plain) {
        return absl::DataLossError(
            absl::StrCat("tensor '", entry.key, "' is in no file of the same folder"));
      }
      files[entry.key] = file;
    }
    return files;
  }
  return absl::DataLossError("there is no \"weight_map\"");
}

}  // namespace geminid::checkpoint
