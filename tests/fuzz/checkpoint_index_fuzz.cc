// The texts beside a checkpoint's tensors: which file has which, and the state of the run.
#include <string>

#include "client/checkpoint/contents.h"
#include "client/checkpoint/run_record.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace geminid;              // NOLINT: one function
  using namespace geminid::checkpoint;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto files = ReadIndex(text);
  if (files.ok()) {
    for (const auto& [tensor, file] : *files) {
      fuzz::Require(file.find('/') == std::string::npos, "a file lies in the checkpoint's folder");
    }
  }
  const absl::StatusOr<RunRecord> record = ReadRecord(text);
  if (!record.ok()) return 0;
  const absl::StatusOr<RunRecord> again = ReadRecord(ToText(*record));
  fuzz::Require(again.ok(), "a record that was read can be written and read again");
  fuzz::Require(again->step == record->step && again->updates == record->updates &&
                    again->ranks == record->ranks,
                "its numbers stay the same");
  return 0;
}
