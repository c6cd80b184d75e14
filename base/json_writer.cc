#include "base/json_writer.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "base/printable.h"

namespace geminid::base {
namespace {

constexpr char kReplacementText[] = "\xef\xbf\xbd";  // kReplacementCharacter in UTF-8

std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (size_t at = 0; at < text.size();) {
    const Character next = CharacterAt(text, at);
    // People read it too. JSON has no bytes that are not UTF-8, though a file's name may: with one
    // of them no program would read the rest. The character in their place is printable itself.
    if (!next.is_printable && next.code != kReplacementCharacter) {
      AppendEscape(next.code, &quoted);
    } else if (!next.is_printable) {
      quoted += kReplacementText;
    } else {
      if (text[at] == '"' || text[at] == '\\') quoted += '\\';
      quoted.append(text, at, next.bytes);
    }
    at += next.bytes;
  }
  return quoted + '"';
}

}  // namespace

void JsonWriter::NewLine() { text_ += '\n' + std::string(2 * empty_.size(), ' '); }

void JsonWriter::BeforeValue() {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (empty_.empty()) return;
  if (!empty_.back()) text_ += ',';
  empty_.back() = false;
  NewLine();
}

JsonWriter& JsonWriter::Open(char bracket) {
  BeforeValue();
  text_ += bracket;
  empty_.push_back(true);
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  const bool empty = empty_.back();
  empty_.pop_back();
  if (!empty) NewLine();
  text_ += bracket;
  return *this;
}

JsonWriter& JsonWriter::Key(const std::string& key) {
  BeforeValue();
  text_ += Quote(key) + ": ";
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::Value(const std::string& value) {
  BeforeValue();
  text_ += Quote(value);
  return *this;
}

JsonWriter& JsonWriter::Value(bool value) {
  BeforeValue();
  text_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::Value(uint64_t value) {
  BeforeValue();
  text_ += std::to_string(value);
  return *this;
}

JsonWriter& JsonWriter::Value(double value) {
  if (!std::isfinite(value)) return Null();
  BeforeValue();
  text_ += absl::StrFormat("%.17g", value);
  return *this;
}

JsonWriter& JsonWriter::Real(double value) {
  Value(value);
  const std::string written = absl::StrFormat("%.17g", value);
  if (written.find_first_not_of("-0123456789") == std::string::npos) text_ += ".0";
  return *this;
}

JsonWriter& JsonWriter::Null() {
  BeforeValue();
  text_ += "null";
  return *this;
}

}  // namespace geminid::base
