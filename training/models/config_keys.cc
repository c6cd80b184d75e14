#include "training/models/config_keys.h"

#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace geminid::trainer {

using base::JsonValue;

std::uint64_t ConfigKeys::Count(const char* key, std::optional<std::uint64_t> otherwise) {
  const JsonValue* value = Find(key);
  if (value == nullptr) {
    if (!otherwise.has_value()) FailAbsent(key);
    return otherwise.value_or(0);
  }
  return CountIn(key, *value);
}

std::uint64_t ConfigKeys::CountIn(const char* key, const JsonValue& value) {
  std::uint64_t count = 0;
  // SimpleAtoi accepts spaces and signs, but the parser lets only '-' through.
  if (value.type == JsonValue::Type::kNumber && value.text[0] != '-' &&
      absl::SimpleAtoi(value.text, &count)) {
    return count;
  }
  FailType(key, "a whole number and not negative", value);
  return 0;
}

std::vector<std::uint64_t> ConfigKeys::Counts(const char* key,
                                              std::vector<std::uint64_t> otherwise) {
  for (const JsonValue::Member& member : object_.members) {
    if (member.key != key) continue;
    if (member.value.type == JsonValue::Type::kNull) return {};
    if (member.value.type != JsonValue::Type::kArray) return {CountIn(key, member.value)};
    std::vector<std::uint64_t> counts;
    for (const JsonValue& item : member.value.items) counts.push_back(CountIn(key, item));
    return counts;
  }
  return otherwise;
}

bool ConfigKeys::Flag(const char* key, bool otherwise) {
  const JsonValue* value = Find(key);
  if (value == nullptr) return otherwise;
  if (value->type == JsonValue::Type::kBool) return value->boolean;
  FailType(key, "true or false", *value);
  return false;
}

double ConfigKeys::Real(const char* key, double otherwise) {
  const JsonValue* value = Find(key);
  if (value == nullptr) return otherwise;
  double real = 0;
  if (value->type == JsonValue::Type::kNumber && absl::SimpleAtod(value->text, &real) &&
      std::isfinite(real)) {
    return real;
  }
  FailType(key, "a finite number", *value);
  return 0;
}

std::string ConfigKeys::Word(const char* key, const std::optional<std::string>& otherwise) {
  const JsonValue* value = Find(key);
  if (value == nullptr) {
    if (!otherwise.has_value()) FailAbsent(key);
    return otherwise.value_or("");
  }
  if (value->type == JsonValue::Type::kString) return value->text;
  FailType(key, "a string", *value);
  return "";
}

std::string ConfigKeys::FirstWord(const char* key) {
  const JsonValue* value = Find(key);
  if (value == nullptr) return "";
  if (value->type == JsonValue::Type::kArray) {
    if (value->items.empty()) return "";
    if (value->items[0].type == JsonValue::Type::kString) return value->items[0].text;
  }
  FailType(key, "an array of strings", *value);
  return "";
}

std::uint64_t ConfigKeys::Members(const char* key) {
  const JsonValue* value = Find(key);
  if (value == nullptr) return 0;
  if (value->type == JsonValue::Type::kObject) return value->members.size();
  FailType(key, "an object", *value);
  return 0;
}

void ConfigKeys::Fail(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
}

absl::Status ConfigKeys::status() const {
  return problem_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problem_);
}

const JsonValue* ConfigKeys::Find(const char* key) const {
  for (const JsonValue::Member& member : object_.members) {
    if (member.key == key && member.value.type != JsonValue::Type::kNull) return &member.value;
  }
  return nullptr;
}

void ConfigKeys::FailType(const char* key, const char* what, const JsonValue& value) {
  Fail(absl::StrCat("'", key, "' must be ", what, " (line ", value.position.line, ")"));
}

void ConfigKeys::FailAbsent(const char* key) { Fail(absl::StrCat("'", key, "' is missing")); }

}  // namespace geminid::trainer
