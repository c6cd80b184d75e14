// Traces as files: the formats, and what the file system may refuse.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"
#include "google/protobuf/util/json_util.h"
#include "tools/forecast/trace_file.h"

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

absl::Status FileError(const std::string& path, const char* what) {
  const int error = errno;
  const std::string text = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(text);
  return absl::UnknownError(text);
}

// Closes, and unless told otherwise unlinks.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path)
      : path_(absl::StrCat(path, ".XXXXXX")), fd_(::mkostemp(path_.data(), O_CLOEXEC)) {}
  ~TemporaryFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    if (!renamed_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  bool exists() const { return fd_ >= 0; }
  bool Write(const std::string& bytes) {
    for (std::size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno != EINTR) return false;
      if (n > 0) done += static_cast<std::size_t>(n);
    }
    constexpr mode_t kEverybodyReads = 0644;
    return ::fchmod(fd_, kEverybodyReads) == 0 && ::fsync(fd_) == 0;
  }
  bool RenameTo(const std::string& path) {
    renamed_ = std::rename(path_.c_str(), path.c_str()) == 0;
    return renamed_;
  }

 private:
  std::string path_;
  const int fd_;
  bool renamed_ = false;
};

absl::StatusOr<std::string> Read(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(path, "opening it");
  std::string bytes;
  char buffer[1 << 16];
  ssize_t n = 0;
  while ((n = ::read(fd, buffer, sizeof(buffer))) != 0) {
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || bytes.size() + static_cast<std::size_t>(n) > kMaxTraceFileBytes) break;
    bytes.append(buffer, static_cast<std::size_t>(n));
  }
  const absl::Status status = n < 0 ? FileError(path, "reading it") : absl::OkStatus();
  ::close(fd);
  if (!status.ok()) return status;
  if (n > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": more than ", kMaxTraceFileBytes, " bytes are not read"));
  }
  return bytes;
}

// The first complaint of the text parser.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!text_.empty()) return;
    text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

absl::Status Parse(const std::string& bytes, Format format, v1::TraceFile* message) {
  if (format == Format::kBinary) {
    return message->ParseFromString(bytes)
               ? absl::OkStatus()
               : absl::InvalidArgumentError("it is no trace, or a part of one");
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
  TemporaryFile file(path);
  if (!file.exists()) return FileError(path, "creating it");
  if (!file.Write(Print(message, format))) return FileError(path, "writing it");
  if (!file.RenameTo(path)) return FileError(path, "replacing it");
  return absl::OkStatus();
}

absl::StatusOr<v1::TraceFile> LoadTraceFile(const std::string& path) {
  GEMINID_ASSIGN_OR_RETURN(const Format format, FormatOf(path));
  GEMINID_ASSIGN_OR_RETURN(const std::string bytes, Read(path));
  v1::TraceFile message;
  if (absl::Status status = Parse(bytes, format, &message); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
  }
  return message;
}

}  // namespace geminid::forecast
