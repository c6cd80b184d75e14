// Receives the errors of protobuf's text parser, under the names of any protobuf version.
#ifndef GEMINID_PROTO_MESSAGES_TEXT_ERRORS_H_
#define GEMINID_PROTO_MESSAGES_TEXT_ERRORS_H_

#include <google/protobuf/io/tokenizer.h>

#include <string>

#include "absl/strings/string_view.h"

namespace geminid::messages {

class TextErrors : public google::protobuf::io::ErrorCollector {
 public:
#if GOOGLE_PROTOBUF_VERSION >= 4022000  // AddError is gone since 26.0
  void RecordError(int line, int column, absl::string_view message) final {
    OnError(line + 1, column + 1, std::string(message));
  }
#else
  void AddError(int line, int column, const std::string& message) final {
    OnError(line + 1, column + 1, message);
  }
#endif

 private:
  // `line` and `column` count from 1.
  virtual void OnError(int line, int column, const std::string& message) = 0;
};

}  // namespace geminid::messages

#endif  // GEMINID_PROTO_MESSAGES_TEXT_ERRORS_H_
