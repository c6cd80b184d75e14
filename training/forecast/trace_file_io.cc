// Traces as files: the formats, and the errors of the file system.
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "proto/messages/text_errors.h"
#include "training/forecast/trace_file.h"

namespace geminid::forecast {
namespace {

enum class Format { kBinary, kJson, kText };

absl::StatusOr<Format> FormatOf(const std::string& path) {
  if (absl::EndsWith(path, ".json")) return Format::kJson;
  if (absl::EndsWith(path, ".textproto")) return Format::kText;
  if (absl::EndsWith(path, ".pb") || absl::EndsWith(path, ".trace")) return Format::kBinary;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": the extension says the format; use .json, .textproto, .pb or .trace"));
}

// Keeps the first error of the text parser.
class FirstError : public messages::TextErrors {
 public:
  const std::string& text() const { return text_; }

 private:
  void OnError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = absl::StrCat("line ", line, ", column ", column, ": ", message);
  }

  std::string text_;
};

absl::Status Parse(const std::string& bytes, Format format, v1::TraceFile* message) {
  if (format == Format::kBinary) {
    return message->ParseFromString(bytes)
               ? absl::OkStatus()
               : absl::InvalidArgumentError("it is not a trace, or it is truncated");
  }
  if (format == Format::kJson) {
    const auto status = google::protobuf::util::JsonStringToMessage(bytes, message);
    return status.ok() ? absl::OkStatus()
                       : absl::InvalidArgumentError(std::string(status.message()));
  }
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  return parser.ParseFromString(bytes, message) ? absl::OkStatus()
                                                : absl::InvalidArgumentError(error.text());
}

std::string Print(const v1::TraceFile& message, Format format) {
  std::string bytes;
  if (format == Format::kBinary) {
    message.SerializeToString(&bytes);
  } else if (format == Format::kText) {
    google::protobuf::TextFormat::PrintToString(message, &bytes);
  } else {
    google::protobuf::util::JsonPrintOptions options;
    options.add_whitespace = true;
    options.preserve_proto_field_names = true;
    google::protobuf::util::MessageToJsonString(message, &bytes, options);
  }
  return bytes;
}

}  // namespace

absl::Status SaveTraceFile(const std::string& path, const v1::TraceFile& message) {
  GEMINID_ASSIGN_OR_RETURN(const Format format, FormatOf(path));
  return base::ReplaceFile(path, Print(message, format));
}

absl::StatusOr<v1::TraceFile> LoadTraceFile(const std::string& path) {
  GEMINID_ASSIGN_OR_RETURN(const Format format, FormatOf(path));
  GEMINID_ASSIGN_OR_RETURN(const std::string bytes, base::ReadFile(path, kMaxTraceFileBytes));
  v1::TraceFile message;
  if (absl::Status status = Parse(bytes, format, &message); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
  }
  return message;
}

}  // namespace geminid::forecast
