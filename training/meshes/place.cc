#include "training/meshes/place.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/status_macros.h"
#include "training/meshes/mesh_axes.h"

namespace geminid::parallel {
namespace {

using base::JsonValue;

struct RateField {
  const char* key;
  double Place::*value;
};
constexpr RateField kRates[] = {
    {"operations_per_second", &Place::operations_per_second},
    {"copied_bytes_per_second", &Place::copied_bytes_per_second},
    {"link_bytes_per_second", &Place::link_bytes_per_second},
    {"peer_bytes_per_second", &Place::peer_bytes_per_second},
    {"peer_message_seconds", &Place::peer_message_seconds},
    {"network_bytes_per_second", &Place::network_bytes_per_second},
    {"network_message_seconds", &Place::network_message_seconds},
};

struct CountField {
  const char* key;
  std::uint64_t PlacedRun::*value;
};
constexpr CountField kCounts[] = {
    {"element_bytes", &PlacedRun::element_bytes},
    {"sequences", &PlacedRun::sequences},
    {"sequence_length", &PlacedRun::sequence_length},
    {"least_micro_batches", &PlacedRun::least_micro_batches},
};

absl::Status Wrong(const std::string& words) {
  return absl::InvalidArgumentError(
      absl::StrCat("this is not the report of a run that measured its ranks: ", words,
                   "; give the --report of a run of geminid-train with --parallel auto"));
}

const JsonValue* Find(const JsonValue& object, const std::string& key) {
  for (const JsonValue::Member& member : object.members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

// Reads fields up to the first that is wrong.
class FieldsOf {
 public:
  explicit FieldsOf(const JsonValue& object) : object_(object) {}
  const absl::Status& status() const { return status_; }

  double Number(const char* key, double least) {
    double value = 0;
    const JsonValue* const field = Get(key, JsonValue::Type::kNumber);
    if (field == nullptr) return least;
    if (!absl::SimpleAtod(field->text, &value) || !(value >= least)) {
      Fail(absl::StrCat("\"", key, "\" is ", field->text));
      return least;
    }
    return value;
  }
  std::uint64_t Count(const char* key) {
    const JsonValue* const field = Get(key, JsonValue::Type::kNumber);
    std::uint64_t value = 0;
    if (field == nullptr) return 1;
    if (absl::SimpleAtoi(field->text, &value) && value > 0) return value;
    Fail(absl::StrCat("\"", key, "\" is ", field->text));
    return 1;
  }
  std::string Text(const char* key) {
    const JsonValue* const field = Get(key, JsonValue::Type::kString);
    return field == nullptr ? "" : field->text;
  }
  std::vector<std::string> Texts(const char* key) {
    std::vector<std::string> texts;
    const JsonValue* const field = Get(key, JsonValue::Type::kArray);
    if (field == nullptr) return texts;
    for (const JsonValue& item : field->items) texts.push_back(item.text);
    return texts;
  }

 private:
  const JsonValue* Get(const char* key, JsonValue::Type type) {
    const JsonValue* const field = Find(object_, key);
    if (field != nullptr && field->type == type) return field;
    Fail(absl::StrCat(field == nullptr ? "it has no \"" : "it has another kind of \"", key, "\""));
    return nullptr;
  }
  void Fail(const std::string& words) {
    if (status_.ok()) status_ = Wrong(words);
  }

  const JsonValue& object_;
  absl::Status status_;
};

}  // namespace

void WritePlacedRun(base::JsonWriter& json, const PlacedRun& run) {
  json.BeginObject();
  json.Key("ranks").Value(static_cast<std::uint64_t>(run.place.ranks));
  json.Key("hosts").Value(static_cast<std::uint64_t>(run.place.hosts));
  json.Key("device_bytes").Value(run.place.device_bytes);
  json.Key("host_bytes").Value(run.place.host_bytes);
  for (const RateField& field : kRates) json.Key(field.key).Value(run.place.*field.value);
  for (const CountField& field : kCounts) json.Key(field.key).Value(run.*field.value);
  json.Key("optimizer").Value(run.optimizer);
  json.Key("state_dtype").Value(run.small_state ? "bf16" : "fp32");
  json.Key("activations").Value(run.activations);
  json.Key("meshes").BeginArray();
  for (const std::string& mesh : run.meshes) json.Value(mesh);
  json.EndArray().EndObject();
}

absl::StatusOr<PlacedRun> ReadPlacedRun(const std::string& json) {
  JsonValue file;
  base::JsonError error;
  if (!base::ParseJson(json, &file, &error)) {
    return Wrong(absl::StrCat("line ", error.position.line, ": ", error.problem));
  }
  const JsonValue* const inside = Find(file, "place");
  FieldsOf fields(inside == nullptr ? file : *inside);
  PlacedRun run;
  const std::uint64_t ranks = fields.Count("ranks"), hosts = fields.Count("hosts");
  run.place.device_bytes = fields.Count("device_bytes");
  run.place.host_bytes = fields.Count("host_bytes");
  for (const RateField& field : kRates) run.place.*field.value = fields.Number(field.key, 0);
  for (const CountField& field : kCounts) run.*field.value = fields.Count(field.key);
  run.optimizer = fields.Text("optimizer");
  const JsonValue* const state = Find(inside == nullptr ? file : *inside, "state_dtype");
  run.small_state = state != nullptr && state->text == "bf16";  // reports had none before bf16
  run.activations = fields.Text("activations");
  run.meshes = fields.Texts("meshes");
  GEMINID_RETURN_IF_ERROR(fields.status());
  if (ranks > kRanksMax || ranks % hosts != 0) {
    return Wrong(absl::StrCat("it has ", ranks, " ranks on ", hosts, " hosts"));
  }
  run.place.ranks = static_cast<int>(ranks);
  run.place.hosts = static_cast<int>(hosts);
  return run;
}

}  // namespace geminid::parallel
