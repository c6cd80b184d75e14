#include "tools/geminictl/commands/schema.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/json_writer.h"
#include "geminid/v1/admin.pb.h"
#include "geminid/v1/config.pb.h"
#include "geminid/v1/job.pb.h"
#include "geminid/v1/memory.pb.h"
#include "geminid/v1/trace.pb.h"
#include "google/protobuf/descriptor.h"
#include "tools/geminictl/output/json_message.h"

namespace geminid::ctl {
namespace {

using base::JsonWriter;
using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

// A document of messages, whose fields are all at its top level.
struct MessageDocument {
  const char* subcommand;
  std::vector<const Descriptor*> messages;
};

std::vector<MessageDocument> MessageDocuments() {
  return {{"status", {v1::Status::descriptor()}},
          {"top", {v1::Ledger::descriptor(), v1::ListSessionsResponse::descriptor()}},
          {"ls sessions", {v1::ListSessionsResponse::descriptor()}},
          {"ls chunks", {v1::ListChunksResponse::descriptor()}},
          {"ls pools", {v1::ListPoolsResponse::descriptor()}},
          {"ls jobs", {v1::ListJobsResponse::descriptor()}},
          {"explain", {v1::ExplainChunkResponse::descriptor()}},
          {"config show", {v1::ShowConfigResponse::descriptor()}},
          {"drain", {v1::DrainResponse::descriptor()}},
          {"evict", {v1::EvictJobResponse::descriptor()}},
          {"scale", {v1::ScaleRequest::descriptor()}},
          {"migrate", {v1::ScaleRequest::descriptor()}},
          {"end", {v1::EndJobResponse::descriptor()}},
          {"trace show", {v1::TraceFile::descriptor()}}};
}

// A document that geminictl writes by itself: fields with their types.
enum class Type { kText, kCount, kNumber, kChecks, kNumbersByName };
struct OwnDocument {
  const char* subcommand;
  std::vector<std::pair<const char*, Type>> fields;
};

std::vector<OwnDocument> OwnDocuments() {
  return {{"version", {{"version", Type::kText}, {"protocol_version", Type::kCount}}},
          {"doctor",
           {{"version", Type::kText},
            {"socket", Type::kText},
            {"checks", Type::kChecks},
            {"pass", Type::kCount},
            {"warn", Type::kCount},
            {"fail", Type::kCount},
            {"skip", Type::kCount}}},
          {"wait", {{"waited_seconds", Type::kNumber}}},
          {"trace export",
           {{"perfetto", Type::kText},
            {"svg", Type::kText},
            {"step_seconds", Type::kNumber},
            {"compute_seconds", Type::kNumber},
            {"wait_seconds", Type::kNumbersByName},
            {"up_bytes", Type::kNumber},
            {"down_bytes", Type::kNumber},
            {"arena_bytes", Type::kCount}}}};
}

class Writer {
 public:
  std::string Write() {
    json_.BeginObject();
    json_.Key("$schema").Value("https://json-schema.org/draft/2020-12/schema");
    json_.Key("title").Value("What geminictl prints with --json");
    json_.Key("schema_version").Value(kSchemaVersion);
    json_.Key("$defs").BeginObject();
    for (const MessageDocument& document : MessageDocuments()) WriteDocument(document);
    for (const OwnDocument& document : OwnDocuments()) WriteDocument(document);
    for (const auto& [name, message] : messages_) {
      json_.Key(name);
      BeginObject();
      WriteFields(*message);
      EndObject({FieldNames(*message)});
    }
    json_.EndObject().EndObject();
    return json_.text() + "\n";
  }

 private:
  using Names = std::vector<std::string>;

  void WriteDocument(const MessageDocument& document) {
    json_.Key(document.subcommand);
    BeginObject();
    WriteVersion();
    std::vector<Names> required = {{"schema_version"}};
    for (const Descriptor* message : document.messages) {
      WriteFields(*message);
      required.push_back(FieldNames(*message));
    }
    EndObject(required);
  }

  void WriteDocument(const OwnDocument& document) {
    json_.Key(document.subcommand);
    BeginObject();
    WriteVersion();
    Names required = {"schema_version"};
    for (const auto& [name, type] : document.fields) {
      json_.Key(name);
      WriteOwn(type);
      required.push_back(name);
    }
    EndObject({required});
  }

  void BeginObject() {
    json_.BeginObject();
    json_.Key("type").Value("object").Key("properties").BeginObject();
  }

  // New fields may be added later; the required ones stay.
  void EndObject(const std::vector<Names>& required) {
    json_.EndObject().Key("required").BeginArray();
    for (const Names& names : required) {
      for (const std::string& name : names) json_.Value(name);
    }
    json_.EndArray().EndObject();
  }

  void WriteVersion() {
    json_.Key("schema_version").BeginObject().Key("const").Value(kSchemaVersion).EndObject();
  }

  void WriteType(const char* type) { json_.BeginObject().Key("type").Value(type).EndObject(); }

  void WriteNumber() {  // infinity and NaN are null
    json_.BeginObject().Key("type").BeginArray().Value("number").Value("null");
    json_.EndArray().EndObject();
  }

  void WriteOwn(Type type) {
    switch (type) {
      case Type::kText:
        return WriteType("string");
      case Type::kCount:
        return WriteType("integer");
      case Type::kNumber:
        return WriteNumber();
      case Type::kNumbersByName:
        json_.BeginObject().Key("type").Value("object").Key("additionalProperties");
        WriteNumber();
        json_.EndObject();
        return;
      case Type::kChecks:
        json_.BeginObject().Key("type").Value("array").Key("items");
        BeginObject();
        const Names names = {"id", "verdict", "found", "fix"};
        for (const std::string& name : names) {
          json_.Key(name);
          WriteType("string");
        }
        EndObject({names});
        json_.EndObject();
        return;
    }
  }

  static Names FieldNames(const Descriptor& message) {
    Names names;
    for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
    return names;
  }

  void WriteFields(const Descriptor& message) {
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor* const field = message.field(i);
      json_.Key(field->name());
      if (field->is_map()) {
        json_.BeginObject().Key("type").Value("object").Key("additionalProperties");
        WriteValue(*field->message_type()->map_value());
        json_.EndObject();
      } else if (field->is_repeated()) {
        json_.BeginObject().Key("type").Value("array").Key("items");
        WriteValue(*field);
        json_.EndObject();
      } else if (field->has_presence()) {
        json_.BeginObject().Key("anyOf").BeginArray();
        WriteValue(*field);
        WriteType("null");
        json_.EndArray().EndObject();
      } else {
        WriteValue(*field);
      }
    }
  }

  void WriteValue(const FieldDescriptor& field) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_BOOL:
        return WriteType("boolean");
      case FieldDescriptor::CPPTYPE_STRING:
        return WriteType("string");
      case FieldDescriptor::CPPTYPE_DOUBLE:
      case FieldDescriptor::CPPTYPE_FLOAT:
        return WriteNumber();
      case FieldDescriptor::CPPTYPE_ENUM:
        return WriteWords(*field.enum_type());
      case FieldDescriptor::CPPTYPE_MESSAGE:
        NoteMessage(*field.message_type());
        json_.BeginObject().Key("$ref");
        json_.Value(absl::StrCat("#/$defs/", field.message_type()->name())).EndObject();
        return;
      default:
        return WriteType("integer");
    }
  }

  void WriteWords(const EnumDescriptor& words) {
    json_.BeginObject().Key("enum").BeginArray();
    for (int i = 0; i < words.value_count(); ++i) json_.Value(EnumWord(*words.value(i)));
    json_.EndArray().EndObject();
  }

  // Notes the message and all messages in it, before their definitions are written.
  void NoteMessage(const Descriptor& message) {
    if (!messages_.emplace(message.name(), &message).second) return;
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor* field = message.field(i);
      if (field->is_map()) field = field->message_type()->map_value();
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        NoteMessage(*field->message_type());
      }
    }
  }

  JsonWriter json_;
  std::map<std::string, const Descriptor*> messages_;
};

}  // namespace

std::string JsonSchema() { return Writer().Write(); }

absl::StatusOr<int> RunSchema(const Context& context) {
  *context.out << JsonSchema();
  return base::kExitOk;
}

}  // namespace geminid::ctl
