#include "training/models/masking.h"

#include <unistd.h>

#include <set>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

using base::JsonValue;

constexpr size_t kFileBytesMax = size_t{64} << 20;
constexpr char kUsualName[] = "[MASK]";

// Unset: the file does not exist.
absl::StatusOr<std::optional<std::string>> ReadIfThere(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
  GEMINID_ASSIGN_OR_RETURN(std::string text, base::ReadFile(path, kFileBytesMax));
  return text;
}

absl::StatusOr<std::optional<JsonValue>> ReadJsonIfThere(const std::string& path) {
  GEMINID_ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadIfThere(path));
  if (!text) return std::nullopt;
  JsonValue root;
  base::JsonError error;
  if (base::ParsePythonJson(*text, &root, &error)) return root;
  return absl::InvalidArgumentError(absl::StrCat("'", path, "': line ", error.position.line,
                                                 ", column ", error.position.column, ": ",
                                                 error.problem));
}

// nullptr: the object has no such key.
const JsonValue* Member(const JsonValue& object, std::string_view key) {
  for (const JsonValue::Member& member : object.members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

// The file has the mask token's text, or an object with the text.
absl::StatusOr<std::string> NameOfMask(const std::string& folder) {
  GEMINID_ASSIGN_OR_RETURN(const std::optional<JsonValue> root,
                           ReadJsonIfThere(folder + "/tokenizer_config.json"));
  const JsonValue* const token = root ? Member(*root, "mask_token") : nullptr;
  if (token == nullptr) return kUsualName;
  if (token->type == JsonValue::Type::kString) return token->text;
  const JsonValue* const content = Member(*token, "content");
  return content != nullptr ? content->text : kUsualName;
}

std::optional<Masking> OfAddedTokens(const JsonValue& tokenizer, const std::string& name) {
  const JsonValue* const added = Member(tokenizer, "added_tokens");
  if (added == nullptr) return std::nullopt;
  std::optional<uint64_t> mask;
  Masking masking;
  for (const JsonValue& token : added->items) {
    const JsonValue* const content = Member(token, "content");
    const JsonValue* const id = Member(token, "id");
    const JsonValue* const special = Member(token, "special");
    uint64_t number = 0;
    if (content == nullptr || id == nullptr || !absl::SimpleAtoi(id->text, &number)) continue;
    if (content->text == name) mask = number;
    if (special != nullptr && special->boolean) masking.special_tokens.push_back(number);
  }
  if (!mask) return std::nullopt;
  masking.mask_token = *mask;
  return masking;
}

std::optional<Masking> OfLines(const std::string& vocabulary, const std::string& name) {
  static const auto* const kSpecial =
      new std::set<std::string>{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  std::optional<uint64_t> mask;
  Masking masking;
  uint64_t number = 0;
  for (const absl::string_view line : absl::StrSplit(vocabulary, '\n')) {
    const std::string token(absl::StripSuffix(line, "\r"));
    if (token == name) mask = number;
    if (kSpecial->contains(token)) masking.special_tokens.push_back(number);
    ++number;
  }
  if (!mask) return std::nullopt;
  masking.mask_token = *mask;
  return masking;
}

}  // namespace

absl::StatusOr<std::optional<Masking>> FindMasking(const std::string& folder) {
  GEMINID_ASSIGN_OR_RETURN(const std::string name, NameOfMask(folder));
  GEMINID_ASSIGN_OR_RETURN(const std::optional<JsonValue> tokenizer,
                           ReadJsonIfThere(folder + "/tokenizer.json"));
  if (tokenizer) {
    if (std::optional<Masking> masking = OfAddedTokens(*tokenizer, name)) return masking;
  }
  GEMINID_ASSIGN_OR_RETURN(const std::optional<std::string> lines,
                           ReadIfThere(folder + "/vocab.txt"));
  return lines ? OfLines(*lines, name) : std::nullopt;
}

}  // namespace geminid::trainer
