#include "daemon/config/config_file.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/suggest.h"
#include "proto/messages/text_errors.h"

namespace geminid::config {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::TextFormat;

std::vector<std::string> FieldNames(const Descriptor* descriptor) {
  std::vector<std::string> names;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    names.emplace_back(descriptor->field(i)->name());
  }
  return names;
}

std::string UnknownKey(const std::string& key, const Descriptor* descriptor) {
  const std::vector<std::string> known = FieldNames(descriptor);
  return absl::StrCat(key, ": unknown key; known here: ", absl::StrJoin(known, ", "),
                      base::DidYouMean(key, known));
}

class Problems {
 public:
  explicit Problems(const std::string& path) : path_(path) {}
  void Add(base::Position position, const std::string& problem) {
    lines_.push_back(absl::StrCat(path_, ":", position.line, ":", position.column, ": ", problem));
  }
  bool empty() const { return lines_.empty(); }
  absl::Status ToStatus() const { return absl::InvalidArgumentError(absl::StrJoin(lines_, "\n")); }

 private:
  const std::string path_;
  std::vector<std::string> lines_;
};

// --- textproto ---------------------------------------------------------------------------------

// Rewords protobuf's message for the most frequent mistake: an unknown key.
class TextErrors : public messages::TextErrors {
 public:
  explicit TextErrors(Problems* problems) : problems_(problems) {}

 private:
  void OnError(int line, int column, const std::string& message) override {
    problems_->Add({line, column}, Reword(message));
  }

  static std::string Reword(const std::string& message) {
    // Example: Message type "geminid.v1.Config" has no field named "sokcet".
    const std::vector<std::string> parts = absl::StrSplit(message, '"');
    if (parts.size() < 4 || !absl::StrContains(parts[2], "has no field named")) return message;
    const Descriptor* descriptor = v1::Config::descriptor()->file()->FindMessageTypeByName(
        std::string(absl::StripPrefix(parts[1], "geminid.v1.")));
    return descriptor == nullptr ? message : UnknownKey(parts[3], descriptor);
  }

  Problems* const problems_;
};

void CollectPositions(const Message& message, TextFormat::ParseInfoTree* tree,
                      const std::string& prefix, std::map<std::string, base::Position>* positions) {
  const Descriptor* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const int count = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
    for (int k = 0; k < count; ++k) {
      const TextFormat::ParseLocation at = tree->GetLocation(field, field->is_repeated() ? k : -1);
      if (at.line < 0) continue;
      const std::string key = absl::StrCat(prefix, field->name(),
                                           field->is_repeated() ? absl::StrCat("[", k, "]") : "");
      (*positions)[key] = {at.line + 1, at.column + 1};
      if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      CollectPositions(message.GetReflection()->GetRepeatedMessage(message, field, k),
                       tree->GetTreeForNested(field, k), key + ".", positions);
    }
  }
}

// People write permissions as a number, `socket_mode: 0660`, but protobuf drops the leading 0. So
// quotes are added here. Lines stay the same; later text on that line moves by two columns.
std::string WithModeInQuotes(const std::string& text) {
  const std::string mode_key = "socket_mode";
  const auto skip_blanks = [&text](size_t at) {
    at = text.find_first_not_of(" \t", at);
    return at == std::string::npos ? text.size() : at;
  };
  for (size_t key = text.find(mode_key); key != std::string::npos;
       key = text.find(mode_key, key + 1)) {
    const size_t colon = skip_blanks(key + mode_key.size());
    if (colon == text.size() || text[colon] != ':') continue;
    const size_t begin = skip_blanks(colon + 1);
    const size_t end = std::min(text.find_first_not_of("0123456789", begin), text.size());
    if (begin == end) continue;
    return absl::StrCat(text.substr(0, begin), "\"", text.substr(begin, end - begin), "\"",
                        text.substr(end));
  }
  return text;
}

void ParseText(const std::string& text, ConfigFile* file, Problems* problems) {
  TextErrors errors(problems);
  TextFormat::ParseInfoTree tree;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.WriteLocationsTo(&tree);
  if (!parser.ParseFromString(WithModeInQuotes(text), &file->config)) return;
  CollectPositions(file->config, &tree, "", &file->positions);
}

// --- JSON --------------------------------------------------------------------------------------

class JsonReader {
 public:
  JsonReader(ConfigFile* file, Problems* problems) : file_(file), problems_(problems) {}

  void ReadObject(const base::JsonValue& object, const std::string& prefix, Message* message) {
    if (object.type != base::JsonValue::Type::kObject) {
      problems_->Add(object.position, "expected an object in braces");
      return;
    }
    for (const base::JsonValue::Member& member : object.members) {
      // Protobuf's JSON names are lower camel case; the names of the .proto file are accepted too.
      const Descriptor* descriptor = message->GetDescriptor();
      const FieldDescriptor* field = descriptor->FindFieldByName(member.key);
      if (field == nullptr) field = descriptor->FindFieldByCamelcaseName(member.key);
      if (field == nullptr) {
        problems_->Add(member.position, UnknownKey(member.key, descriptor));
      } else if (file_->positions.count(absl::StrCat(prefix, field->name())) > 0) {
        problems_->Add(member.position, absl::StrCat(member.key, ": given twice"));
      } else if (field->is_repeated()) {
        ReadArray(member.value, absl::StrCat(prefix, field->name()), field, message);
      } else {
        file_->positions[absl::StrCat(prefix, field->name())] = member.position;
        ReadScalar(member.value, field, message);
      }
    }
  }

 private:
  // All repeated fields of the configuration are messages.
  void ReadArray(const base::JsonValue& value, const std::string& key, const FieldDescriptor* field,
                 Message* message) {
    if (value.type != base::JsonValue::Type::kArray) {
      problems_->Add(value.position,
                     absl::StrCat(field->name(), ": expected an array in brackets"));
      return;
    }
    for (size_t i = 0; i < value.items.size(); ++i) {
      const std::string item_key = absl::StrCat(key, "[", i, "]");
      file_->positions[item_key] = value.items[i].position;
      ReadObject(value.items[i], item_key + ".",
                 message->GetReflection()->AddMessage(message, field));
    }
  }

  void ReadScalar(const base::JsonValue& value, const FieldDescriptor* field, Message* message) {
    const auto* reflection = message->GetReflection();
    uint32_t number;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING &&
        value.type == base::JsonValue::Type::kString) {
      reflection->SetString(message, field, value.text);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL &&
               value.type == base::JsonValue::Type::kBool) {
      reflection->SetBool(message, field, value.boolean);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32 &&
               value.type == base::JsonValue::Type::kNumber &&
               absl::SimpleAtoi(value.text, &number)) {
      reflection->SetUInt32(message, field, number);
    } else {
      problems_->Add(value.position, absl::StrCat(field->name(), ": expected ", Expected(field)));
    }
  }

  static const char* Expected(const FieldDescriptor* field) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return "a string in double quotes";
      case FieldDescriptor::CPPTYPE_BOOL:
        return "true or false";
      default:
        return "a whole number from 0 to 4294967295";
    }
  }

  ConfigFile* const file_;
  Problems* const problems_;
};

void ParseJsonConfig(const std::string& text, ConfigFile* file, Problems* problems) {
  base::JsonValue value;
  base::JsonError error;
  if (!base::ParseJson(text, &value, &error)) {
    problems->Add(error.position, error.problem);
    return;
  }
  JsonReader(file, problems).ReadObject(value, "", &file->config);
}

}  // namespace

absl::StatusOr<ConfigFile> ParseConfigFile(const std::string& path, const std::string& text) {
  ConfigFile file;
  file.path = path;
  Problems problems(path);
  // Some editors begin a file with the mark of UTF-8's byte order.
  const std::string without_mark(absl::StripPrefix(text, "\xEF\xBB\xBF"));
  if (absl::EndsWith(path, ".textproto")) {
    ParseText(without_mark, &file, &problems);
  } else if (absl::EndsWith(path, ".json")) {
    ParseJsonConfig(without_mark, &file, &problems);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a configuration file ends in .textproto or .json"));
  }
  if (!problems.empty()) return problems.ToStatus();
  return file;
}

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path) {
  const absl::StatusOr<std::string> text = base::ReadFile(path, kMaxConfigFileBytes);
  // Whatever the error is, the user who named the file must correct it.
  if (!text.ok()) return absl::InvalidArgumentError(text.status().message());
  return ParseConfigFile(path, *text);
}

}  // namespace geminid::config
