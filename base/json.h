// Parses JSON (RFC 8259) into a tree that has each value's position, for messages with line and
// column. Behind this header nlohmann's library checks the grammar (ADR 10).
#ifndef GEMINID_BASE_JSON_H_
#define GEMINID_BASE_JSON_H_

#include <string>
#include <utility>
#include <vector>

namespace geminid::base {

// Both count from 1; columns are bytes.
struct Position {
  int line = 0;
  int column = 0;
};

struct JsonValue {
  enum class Type { kNull, kBool, kNumber, kString, kArray, kObject };
  struct Member;

  Type type = Type::kNull;
  Position position;
  bool boolean = false;
  std::string text;  // a string's characters in UTF-8, or a number as written
  std::vector<JsonValue> items;
  std::vector<Member> members;  // in the order of the text; keys are unique
};

struct JsonValue::Member {
  std::string key;
  Position position;  // of the key
  JsonValue value;
};

struct JsonError {
  Position position;
  std::string problem;
};

// Parses all of `text` into *value, or fills *error and returns false. Refuses duplicate keys,
// trailing text, comments, text that is not UTF-8, and nesting deeper than 16. Takes time
// proportional to the text.
bool ParseJson(const std::string& text, JsonValue* value, JsonError* error);

// The same for files of Python's json module, which writes NaN, Infinity and -Infinity. Each
// becomes a number with that text; code that reads the number refuses it.
bool ParsePythonJson(const std::string& text, JsonValue* value, JsonError* error);

}  // namespace geminid::base

#endif  // GEMINID_BASE_JSON_H_
