#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "absl/strings/str_cat.h"

namespace geminid::base {
namespace {

constexpr size_t kMaxDepth = 16;

// Finds the tokens again that the library has read: it says what they are, but not where. To be
// told of every token but ',' and ':', in their order.
class Cursor {
 public:
  explicit Cursor(const std::string& text) : text_(text) {}

  // Where the next token begins.
  Position Find() {
    SkipAnyOf(" \t\r\n,:");
    return position_;
  }
  bool AtEnd() const { return at_ == text_.size(); }

  void SkipBracket() { Advance(at_ + 1); }
  void SkipString() {
    size_t end = at_ + 1;
    while (text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    Advance(end + 1);
  }
  // Returns it as it is spelled.
  std::string SkipWord() {
    const size_t end = std::min(text_.find_first_of(" \t\r\n,:]}", at_), text_.size());
    std::string word = text_.substr(at_, end - at_);
    Advance(end);
    return word;
  }
  void SkipSpace() { SkipAnyOf(" \t\r\n"); }

  // Where the `count`-th byte of the text stands; 1 is the first.
  Position PositionOf(size_t count) const {
    Cursor other(text_);
    other.Advance(count - 1);
    return other.position_;
  }

 private:
  void SkipAnyOf(const char* characters) {
    Advance(std::min(text_.find_first_not_of(characters, at_), text_.size()));
  }
  void Advance(size_t to) {
    for (; at_ < to; ++at_) {
      if (text_[at_] == '\n') position_ = {position_.line + 1, 0};
      ++position_.column;
    }
  }

  const std::string& text_;
  size_t at_ = 0;
  Position position_ = {1, 1};
};

// What the library calls with one token after the other; false ends the parsing. The names are
// those that it asks for (its concept SAX).
// NOLINTBEGIN(readability-identifier-naming)
class TreeBuilder {
 public:
  TreeBuilder(const std::string& text, JsonValue* root, JsonError* error)
      : bytes_(text.size()), cursor_(text), root_(root), error_(error) {}

  bool null() { return Word(JsonValue::Type::kNull); }
  bool boolean(bool value) {
    NewValue(JsonValue::Type::kBool)->boolean = value;
    cursor_.SkipWord();
    return true;
  }
  bool number_integer(int64_t) { return Word(JsonValue::Type::kNumber); }
  bool number_unsigned(uint64_t) { return Word(JsonValue::Type::kNumber); }
  bool number_float(double, const std::string&) { return Word(JsonValue::Type::kNumber); }
  bool string(std::string& value) {
    NewValue(JsonValue::Type::kString)->text = std::move(value);
    cursor_.SkipString();
    return true;
  }
  bool binary(std::vector<uint8_t>&) { return false; }  // only in formats other than JSON

  bool start_object(size_t) { return Open(JsonValue::Type::kObject); }
  bool end_object() { return Close(); }
  bool start_array(size_t) { return Open(JsonValue::Type::kArray); }
  bool end_array() { return Close(); }

  bool key(std::string& key) {
    const Position position = cursor_.Find();
    if (!keys_.back().insert(key).second) {
      return Fail(position, absl::StrCat(key, ": given twice"));
    }
    open_.back()->members.push_back({std::move(key), position, {}});
    cursor_.SkipString();
    return true;
  }

  bool parse_error(size_t bytes_read, const std::string&,
                   const nlohmann::json::exception& exception) {
    // "[json.exception.parse_error.101] parse error at line 1, column 7: syntax error while ..."
    const std::string words = exception.what();
    const size_t begin = std::min(words.find("syntax error"), words.find("number overflow"));
    // Where a token is malformed in itself, the library has stopped in the middle of it.
    const bool inside = words.find("last read: ") != std::string::npos && bytes_read <= bytes_;
    return Fail(inside ? cursor_.PositionOf(bytes_read) : cursor_.Find(),
                begin == std::string::npos ? words : words.substr(begin));
  }

  // The library takes a zero byte for the end.
  bool Finish() {
    cursor_.SkipSpace();
    return cursor_.AtEnd() || Fail(cursor_.Find(), "text after the end of the value");
  }

 private:
  bool Fail(Position position, std::string problem) {
    *error_ = {position, std::move(problem)};
    return false;
  }

  // At the end of what is open.
  JsonValue* NewValue(JsonValue::Type type) {
    JsonValue* value = root_;
    if (!open_.empty()) {
      JsonValue& outer = *open_.back();
      value = outer.type == JsonValue::Type::kArray ? &outer.items.emplace_back()
                                                    : &outer.members.back().value;
    }
    value->type = type;
    value->position = cursor_.Find();
    return value;
  }

  bool Word(JsonValue::Type type) {
    JsonValue* value = NewValue(type);
    std::string word = cursor_.SkipWord();
    if (type == JsonValue::Type::kNumber) value->text = std::move(word);
    return true;
  }

  bool Open(JsonValue::Type type) {
    if (open_.size() == kMaxDepth) {
      return Fail(cursor_.Find(), absl::StrCat("nested deeper than ", kMaxDepth));
    }
    open_.push_back(NewValue(type));
    keys_.emplace_back();
    cursor_.SkipBracket();
    return true;
  }

  bool Close() {
    cursor_.Find();
    cursor_.SkipBracket();
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  const size_t bytes_;
  Cursor cursor_;
  JsonValue* const root_;
  JsonError* const error_;
  std::vector<JsonValue*> open_;  // each the last of what the one before it holds: none moves
  std::vector<std::unordered_set<std::string>> keys_;  // of each
};
// NOLINTEND(readability-identifier-naming)

bool Parse(const std::string& grammatical, const std::string& text, JsonValue* value,
           JsonError* error) {
  *value = {};
  if (text.starts_with("\xef\xbb\xbf")) {  // the library would skip it
    *error = {{1, 1}, "a byte order mark; save the text as UTF-8 without one"};
    return false;
  }
  TreeBuilder builder(text, value, error);
  return nlohmann::json::sax_parse(grammatical, &builder) && builder.Finish();
}

// Python's words for numbers that JSON does not have, and JSON's of the same length.
struct PythonNumber {
  std::string_view word;
  std::string_view stand_in;
};
constexpr PythonNumber kPythonNumbers[] = {
    {"NaN", "0.0"}, {"Infinity", "0.000000"}, {"-Infinity", "-0.000000"}};

// Whether a value may begin after, or end before, this character.
bool IsBoundary(char c) { return std::string_view(" \t\r\n,:[]}").find(c) != std::string_view::npos; }

// Where the string that begins at `begin` has ended.
size_t EndOfString(const std::string& text, size_t begin) {
  size_t at = begin + 1;
  while (at < text.size() && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
  return at + 1;
}

// `text` with Python's words replaced, everything at its place.
std::string WithoutPythonNumbers(std::string text) {
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      at = EndOfString(text, at);
      continue;
    }
    for (const auto& [word, stand_in] : kPythonNumbers) {
      const size_t end = at + word.size();
      if (text.compare(at, word.size(), word) != 0) continue;
      if (at > 0 && !IsBoundary(text[at - 1])) continue;
      if (end < text.size() && !IsBoundary(text[end])) continue;
      text.replace(at, word.size(), stand_in);
    }
    ++at;
  }
  return text;
}

}  // namespace

bool ParseJson(const std::string& text, JsonValue* value, JsonError* error) {
  return Parse(text, text, value, error);
}

bool ParsePythonJson(const std::string& text, JsonValue* value, JsonError* error) {
  return Parse(WithoutPythonNumbers(text), text, value, error);
}

}  // namespace geminid::base
