#include "base/json.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace geminid::base {
namespace {

constexpr int kMaxDepth = 16;

void AppendUtf8(uint32_t code, std::string* text) {
  if (code < 0x80) {
    *text += static_cast<char>(code);
  } else if (code < 0x800) {
    *text += static_cast<char>(0xc0 | code >> 6);
    *text += static_cast<char>(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    *text += static_cast<char>(0xe0 | code >> 12);
    *text += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    *text += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    *text += static_cast<char>(0xf0 | code >> 18);
    *text += static_cast<char>(0x80 | (code >> 12 & 0x3f));
    *text += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    *text += static_cast<char>(0x80 | (code & 0x3f));
  }
}

class Parser {
 public:
  Parser(const std::string& text, JsonError* error) : text_(text), error_(error) {}

  bool ParseAll(JsonValue* value) {
    SkipSpace();
    if (!ParseValue(value, 0)) return false;
    SkipSpace();
    return AtEnd() || Fail("text after the end of the value");
  }

 private:
  bool AtEnd() const { return at_ == text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[at_]; }

  void Advance() {
    if (text_[at_] == '\n') {
      ++position_.line;
      position_.column = 0;
    }
    ++position_.column;
    ++at_;
  }

  bool Accept(char c) {
    if (AtEnd() || text_[at_] != c) return false;
    Advance();
    return true;
  }

  void SkipSpace() {
    while (Peek() == ' ' || Peek() == '\t' || Peek() == '\n' || Peek() == '\r') Advance();
  }

  bool Fail(const std::string& problem) { return FailAt(position_, problem); }
  bool FailAt(Position position, const std::string& problem) {
    *error_ = {position, problem};
    return false;
  }

  bool ParseValue(JsonValue* value, int depth) {
    if (depth > kMaxDepth) return Fail(absl::StrCat("nested deeper than ", kMaxDepth));
    value->position = position_;
    switch (Peek()) {
      case '{':
        return ParseObject(value, depth);
      case '[':
        return ParseArray(value, depth);
      case '"':
        value->type = JsonValue::Type::kString;
        return ParseString(&value->text);
      default:
        return ParseScalar(value);
    }
  }

  bool ParseObject(JsonValue* value, int depth) {
    value->type = JsonValue::Type::kObject;
    Advance();
    SkipSpace();
    if (Accept('}')) return true;
    do {
      SkipSpace();
      JsonValue::Member member;
      member.position = position_;
      if (Peek() != '"') return Fail("expected a key in double quotes");
      if (!ParseString(&member.key)) return false;
      const bool known = std::any_of(value->members.begin(), value->members.end(),
                                     [&](const auto& other) { return other.key == member.key; });
      if (known) return FailAt(member.position, absl::StrCat(member.key, ": given twice"));
      SkipSpace();
      if (!Accept(':')) return Fail("expected ':' after the key");
      SkipSpace();
      if (!ParseValue(&member.value, depth + 1)) return false;
      value->members.push_back(std::move(member));
      SkipSpace();
    } while (Accept(','));
    return Accept('}') || Fail("expected ',' or '}'");
  }

  bool ParseArray(JsonValue* value, int depth) {
    value->type = JsonValue::Type::kArray;
    Advance();
    SkipSpace();
    if (Accept(']')) return true;
    do {
      SkipSpace();
      value->items.emplace_back();
      if (!ParseValue(&value->items.back(), depth + 1)) return false;
      SkipSpace();
    } while (Accept(','));
    return Accept(']') || Fail("expected ',' or ']'");
  }

  bool ParseString(std::string* result) {
    const Position begin = position_;
    Advance();
    while (!AtEnd()) {
      const char c = Peek();
      if (static_cast<unsigned char>(c) < 0x20) return Fail("a control character in a string");
      if (c == '"') {
        Advance();
        return true;
      }
      if (c == '\\') {
        if (!ParseEscape(result)) return false;
        continue;
      }
      *result += c;
      Advance();
    }
    return FailAt(begin, "the string does not end");
  }

  bool ParseEscape(std::string* result) {
    static constexpr char kLetters[] = "\"\\/bfnrt";
    static constexpr char kMeanings[] = "\"\\/\b\f\n\r\t";
    Advance();
    const char letter = Peek();
    for (int i = 0; kLetters[i] != '\0'; ++i) {
      if (letter != kLetters[i]) continue;
      *result += kMeanings[i];
      Advance();
      return true;
    }
    if (letter != 'u') return Fail("an unknown escape");
    uint32_t code = 0;
    if (!ParseHex(&code)) return false;
    if (code >= 0xd800 && code < 0xdc00) {  // the first half of a surrogate pair
      uint32_t low = 0;
      if (Peek() != '\\') return Fail("half a surrogate pair");
      Advance();
      if (Peek() != 'u' || !ParseHex(&low) || low < 0xdc00 || low > 0xdfff) {
        return Fail("half a surrogate pair");
      }
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else if (code >= 0xdc00 && code < 0xe000) {
      return Fail("half a surrogate pair");
    }
    AppendUtf8(code, result);
    return true;
  }

  // From the 'u' to the fourth digit after it.
  bool ParseHex(uint32_t* code) {
    Advance();
    for (int i = 0; i < 4; ++i) {
      const char c = Peek();
      if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) {
        return Fail("four hexadecimal digits must follow \\u");
      }
      const int digit = absl::ascii_isdigit(static_cast<unsigned char>(c))
                            ? c - '0'
                            : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
      *code = *code * 16 + static_cast<uint32_t>(digit);
      Advance();
    }
    return true;
  }

  bool ParseScalar(JsonValue* value) {
    const Position begin = position_;
    std::string word;
    while (absl::ascii_isalnum(static_cast<unsigned char>(Peek())) || Peek() == '-' ||
           Peek() == '+' || Peek() == '.') {
      word += Peek();
      Advance();
    }
    if (word.empty()) return Fail(AtEnd() ? "the text ends too early" : "expected a value");
    value->text = word;
    if (word == "null") return true;
    if (word == "true" || word == "false") {
      value->type = JsonValue::Type::kBool;
      value->boolean = word == "true";
      return true;
    }
    double ignored;
    value->type = JsonValue::Type::kNumber;
    const bool number =
        (word[0] == '-' || absl::ascii_isdigit(static_cast<unsigned char>(word[0]))) &&
        absl::SimpleAtod(word, &ignored);
    return number ||
           FailAt(begin, absl::StrCat("'", word, "' is not a value; strings need quotes"));
  }

  const std::string& text_;
  JsonError* const error_;
  size_t at_ = 0;
  Position position_ = {1, 1};
};

}  // namespace

bool ParseJson(const std::string& text, JsonValue* value, JsonError* error) {
  return Parser(text, error).ParseAll(value);
}

}  // namespace geminid::base
