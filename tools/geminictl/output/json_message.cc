#include "tools/geminictl/output/json_message.h"

#include <map>

#include "absl/strings/ascii.h"
#include "google/protobuf/descriptor.h"

namespace geminid::ctl {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

void WriteInteger(int64_t value, JsonWriter* json) {
  if (value >= 0) {
    json->Value(static_cast<uint64_t>(value));
  } else {
    json->Value(static_cast<double>(value));
  }
}

// Writes a field's value: the only one if `index` is negative, else the index-th one.
void WriteValue(const Message& message, const FieldDescriptor* field, int index, JsonWriter* json) {
  const Reflection* r = message.GetReflection();
  if (index < 0 && field->has_presence() && !r->HasField(message, field)) {
    json->Null();
    return;
  }
  const auto get = [&](auto single, auto repeated) {
    return index < 0 ? (r->*single)(message, field) : (r->*repeated)(message, field, index);
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      json->Value(get(&Reflection::GetBool, &Reflection::GetRepeatedBool));
      return;
    case FieldDescriptor::CPPTYPE_INT32:
      WriteInteger(get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32), json);
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      WriteInteger(get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64), json);
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      json->Value(uint64_t{get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32)});
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      json->Value(uint64_t{get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64)});
      return;
    case FieldDescriptor::CPPTYPE_FLOAT:
      json->Value(double{get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat)});
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      json->Value(get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      json->Value(get(&Reflection::GetString, &Reflection::GetRepeatedString));
      return;
    case FieldDescriptor::CPPTYPE_ENUM:
      json->Value(EnumWord(*get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum)));
      return;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      WriteMessage(
          index < 0 ? r->GetMessage(message, field) : r->GetRepeatedMessage(message, field, index),
          json);
      return;
  }
}

// Writes a map with strings as keys, sorted, because protobuf's order changes from run to run.
void WriteMap(const Message& message, const FieldDescriptor* field, JsonWriter* json) {
  const Reflection* reflection = message.GetReflection();
  std::map<std::string, const Message*> entries;
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    const Message& entry = reflection->GetRepeatedMessage(message, field, i);
    entries[entry.GetReflection()->GetString(entry, entry.GetDescriptor()->map_key())] = &entry;
  }
  json->BeginObject();
  for (const auto& [key, entry] : entries) {
    json->Key(key);
    WriteValue(*entry, entry->GetDescriptor()->map_value(), -1, json);
  }
  json->EndObject();
}

void WriteFields(const Message& message, JsonWriter* json) {
  const auto* descriptor = message.GetDescriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    json->Key(std::string(field->name()));
    if (field->is_map()) {
      WriteMap(message, field, json);
    } else if (field->is_repeated()) {
      json->BeginArray();
      const int count = message.GetReflection()->FieldSize(message, field);
      for (int j = 0; j < count; ++j) WriteValue(message, field, j, json);
      json->EndArray();
    } else {
      WriteValue(message, field, -1, json);
    }
  }
}

}  // namespace

std::string EnumWord(const EnumValueDescriptor& value) {
  size_t prefix = 0;
  for (const char c : value.type()->name()) prefix += absl::ascii_isupper(c) ? 2 : 1;
  const std::string& name = value.name();
  return absl::AsciiStrToLower(prefix < name.size() ? name.substr(prefix) : name);
}

void WriteMessage(const Message& message, JsonWriter* json) {
  json->BeginObject();
  WriteFields(message, json);
  json->EndObject();
}

std::string JsonDocument(const std::vector<const Message*>& messages) {
  JsonWriter json;
  json.BeginObject();
  json.Key("schema_version").Value(kSchemaVersion);
  for (const Message* message : messages) WriteFields(*message, &json);
  json.EndObject();
  return json.text() + "\n";
}

}  // namespace geminid::ctl
