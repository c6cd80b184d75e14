#include "training/logs/formats.h"

#include <bit>
#include <cstdint>
#include <string_view>

#include "base/json_writer.h"
#include "proto/shm/crc32c.h"

namespace geminid::trainer {
namespace {

// Since 1970; to the microsecond, which a double holds for centuries.
double UnixSeconds(absl::Time time) { return static_cast<double>(absl::ToUnixMicros(time)) / 1e6; }

// --- protobuf's wire format, as much of it as an Event needs ---

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void AppendVarint(uint64_t value, std::string* out) {
  constexpr uint64_t kMore = 0x80;
  for (; value >= kMore; value >>= 7) out->push_back(static_cast<char>(value | kMore));
  out->push_back(static_cast<char>(value));
}

void AppendTag(uint64_t field, WireType type, std::string* out) {
  AppendVarint(field << 3 | static_cast<uint64_t>(type), out);
}

template <typename Bits>
void AppendFixed(Bits bits, std::string* out) {
  for (size_t i = 0; i < sizeof(bits); ++i) out->push_back(static_cast<char>(bits >> 8 * i));
}

void AppendBytes(uint64_t field, std::string_view bytes, std::string* out) {
  AppendTag(field, WireType::kBytes, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

// --- Event: wall_time = 1, step = 2, file_version = 3, summary = 5 ---

std::string EventAt(absl::Time time) {
  std::string event;
  AppendTag(1, WireType::kFixed64, &event);
  AppendFixed(std::bit_cast<uint64_t>(UnixSeconds(time)), &event);
  return event;
}

// Summary: value = 1. Summary.Value: tag = 1, simple_value = 2.
void AppendScalar(std::string_view tag, double value, std::string* summary) {
  std::string entry;
  AppendBytes(1, tag, &entry);
  AppendTag(2, WireType::kFixed32, &entry);
  AppendFixed(std::bit_cast<uint32_t>(static_cast<float>(value)), &entry);
  AppendBytes(1, entry, summary);
}

uint32_t MaskedCrc(const std::string& data) {
  constexpr uint32_t kMaskDelta = 0xa282ead8;
  return std::rotr(shm::Crc32c(data.data(), data.size()), 15) + kMaskDelta;
}

std::string Record(const std::string& data) {
  std::string record;
  AppendFixed(uint64_t{data.size()}, &record);
  AppendFixed(MaskedCrc(record), &record);
  record += data;
  AppendFixed(MaskedCrc(data), &record);
  return record;
}

}  // namespace

std::string JsonLine(const StepRecord& record) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("step").Value(record.step);
  json.Key("time").Value(UnixSeconds(record.time));
  json.Key("loss").Value(record.loss);
  if (record.validation_loss) json.Key("validation_loss").Value(*record.validation_loss);
  if (record.validation_accuracy) {
    json.Key("validation_accuracy").Value(*record.validation_accuracy);
  }
  if (record.epoch) json.Key("epoch").Value(*record.epoch);
  json.Key("gradient_norm").Value(record.gradient_norm);
  json.Key("learning_rate").Value(record.learning_rate);
  if (record.micro_batches) json.Key("micro_batches").Value(*record.micro_batches);
  if (!record.batch_change.empty()) json.Key("batch_change").Value(record.batch_change);
  json.Key("loss_scale").Value(record.loss_scale);
  json.Key("overflow").Value(record.overflow);
  json.Key("tokens").Value(record.tokens);
  json.Key("seconds").Value(record.seconds);
  json.Key("tokens_per_second").Value(record.tokens_per_second);
  json.Key("flops_per_second").Value(record.flops_per_second);
  json.EndObject();
  // The writer's line feeds and indentation; no string has a line feed of its own.
  std::string line;
  bool at_start = true;
  for (const char c : json.text()) {
    if (at_start && c == ' ') continue;
    at_start = c == '\n';
    if (!at_start) line.push_back(c);
  }
  return line + "\n";
}

std::string EventFileStart(absl::Time time) {
  std::string event = EventAt(time);
  AppendBytes(3, "brain.Event:2", &event);
  return Record(event);
}

std::string StepEvent(const StepRecord& record) {
  std::string summary;
  AppendScalar("loss/train", record.loss, &summary);
  if (record.validation_loss) AppendScalar("loss/validation", *record.validation_loss, &summary);
  if (record.validation_accuracy) {
    AppendScalar("accuracy/validation", *record.validation_accuracy, &summary);
  }
  if (record.epoch) AppendScalar("progress/epoch", *record.epoch, &summary);
  AppendScalar("optimizer/gradient_norm", record.gradient_norm, &summary);
  AppendScalar("optimizer/learning_rate", record.learning_rate, &summary);
  if (record.micro_batches) {
    AppendScalar("optimizer/micro_batches", static_cast<double>(*record.micro_batches), &summary);
  }
  AppendScalar("optimizer/loss_scale", record.loss_scale, &summary);
  AppendScalar("speed/tokens_per_second", record.tokens_per_second, &summary);
  AppendScalar("speed/flops_per_second", record.flops_per_second, &summary);
  std::string event = EventAt(record.time);
  AppendTag(2, WireType::kVarint, &event);
  AppendVarint(record.step, &event);
  AppendBytes(5, summary, &event);
  return Record(event);
}

}  // namespace geminid::trainer
