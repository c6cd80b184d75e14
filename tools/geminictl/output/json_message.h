// The daemon's messages as JSON for scripts.
//
// Unlike protobuf's own mapping: 64-bit integers are numbers and not strings, so that jq can
// compare and add them, and enumerations are the words of the CLI ("device", not "TIER_DEVICE").
// Field names are those of the .proto files; fields with default values are written too.
#ifndef GEMINID_TOOLS_GEMINICTL_OUTPUT_JSON_MESSAGE_H_
#define GEMINID_TOOLS_GEMINICTL_OUTPUT_JSON_MESSAGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace geminid::ctl {

using base::JsonWriter;

// The version of every JSON document that geminictl prints. Raised when a field changes its meaning
// or is removed; new fields do not raise it.
inline constexpr uint64_t kSchemaVersion = 1;

// "TIER_DEVICE" of enum Tier -> "device": the style guide's prefix, one '_' per capital letter.
std::string EnumWord(const google::protobuf::EnumValueDescriptor& value);

// The message as one object. A field with presence, such as a message, that is not set is null.
void WriteMessage(const google::protobuf::Message& message, JsonWriter* json);

// {"schema_version": 1, the fields of each message in turn}, with a newline at the end.
std::string JsonDocument(const std::vector<const google::protobuf::Message*>& messages);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_OUTPUT_JSON_MESSAGE_H_
