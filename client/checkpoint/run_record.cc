#include "client/checkpoint/run_record.h"

#include <array>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/json_writer.h"

namespace geminid::checkpoint {
namespace {

using base::JsonValue;

// Reads numbers by name, and records the first that is missing.
class Reader {
 public:
  explicit Reader(const JsonValue& object) : object_(object) {}

  uint64_t Whole(const char* key) {
    uint64_t number = 0;
    const JsonValue* value = Find(key);
    if (value == nullptr || !absl::SimpleAtoi(value->text, &number)) Miss(key);
    return number;
  }

  uint32_t Small(const char* key) {
    const uint64_t number = Whole(key);
    if (number > std::numeric_limits<uint32_t>::max()) Miss(key);
    return static_cast<uint32_t>(number);
  }

  double Real(const char* key) {
    double number = 0;
    const JsonValue* value = Find(key);
    if (value == nullptr || !absl::SimpleAtod(value->text, &number)) Miss(key);
    return number;
  }

  template <size_t kCount>
  std::array<uint64_t, kCount> Wholes(const char* key) {
    std::array<uint64_t, kCount> numbers = {};
    const JsonValue* value = Find(key);
    if (value == nullptr || value->items.size() != kCount) {
      Miss(key);
      return numbers;
    }
    for (size_t i = 0; i < kCount; ++i) {
      if (!absl::SimpleAtoi(value->items[i].text, &numbers[i])) Miss(key);
    }
    return numbers;
  }

  bool Truth(const char* key, bool unless_said) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return unless_said;
    if (value->type != JsonValue::Type::kBool) Miss(key);
    return value->boolean;
  }

  std::string Text(const char* key, std::string unless_said) {
    const JsonValue* value = Find(key);
    if (value == nullptr) return unless_said;
    if (value->type != JsonValue::Type::kString) Miss(key);
    return value->text;
  }

  const std::string& missed() const { return missed_; }

 private:
  const JsonValue* Find(const char* key) const {
    for (const JsonValue::Member& member : object_.members) {
      if (member.key == key) return &member.value;
    }
    return nullptr;
  }
  void Miss(const char* key) {
    if (missed_.empty()) missed_ = key;
  }

  const JsonValue& object_;
  std::string missed_;
};

}  // namespace

std::string ToText(const RunRecord& record) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("format").Value(kFormatVersion);
  json.Key("step").Value(record.step);
  json.Key("updates").Value(record.updates);
  json.Key("loss_scale").Value(record.loss_scaler.scale);
  json.Key("loss_scale_good_steps").Value(uint64_t{record.loss_scaler.good_steps});
  json.Key("loss_scale_overflows").Value(uint64_t{record.loss_scaler.overflows});
  json.Key("data_position").Value(record.run.data_position);
  json.Key("random_state").BeginArray();
  for (uint64_t word : record.run.random_state) json.Value(word);
  json.EndArray();
  json.Key("ranks").Value(record.ranks);
  if (!record.optimizer.empty()) json.Key("optimizer").Value(record.optimizer);
  json.Key("healthy").Value(record.healthy);
  json.EndObject();
  return json.text() + "\n";
}

absl::StatusOr<RunRecord> ReadRecord(const std::string& text) {
  JsonValue root;
  base::JsonError error;
  if (!base::ParseJson(text, &root, &error)) {
    return absl::DataLossError(absl::StrCat("line ", error.position.line, ", column ",
                                            error.position.column, ": ", error.problem));
  }
  Reader reader(root);
  const uint64_t format = reader.Whole("format");
  if (reader.missed().empty() && format != kFormatVersion) {
    return absl::DataLossError(
        absl::StrCat("it has format ", format, "; this program reads ", kFormatVersion));
  }
  RunRecord record;
  record.step = reader.Whole("step");
  record.updates = reader.Whole("updates");
  record.loss_scaler.scale = reader.Real("loss_scale");
  record.loss_scaler.good_steps = reader.Small("loss_scale_good_steps");
  record.loss_scaler.overflows = reader.Small("loss_scale_overflows");
  record.run.data_position = reader.Whole("data_position");
  record.run.random_state = reader.Wholes<4>("random_state");
  record.ranks = reader.Whole("ranks");
  record.optimizer = reader.Text("optimizer", "");
  record.healthy = reader.Truth("healthy", true);
  if (!reader.missed().empty()) {
    return absl::DataLossError(
        absl::StrCat("\"", reader.missed(), "\" is missing, or has another type"));
  }
  return record;
}

}  // namespace geminid::checkpoint
