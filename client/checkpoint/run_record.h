// "state.json": the contents of a checkpoint besides tensors. Pure text.
#ifndef GEMINID_CLIENT_CHECKPOINT_RUN_RECORD_H_
#define GEMINID_CLIENT_CHECKPOINT_RUN_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/checkpoint.h"
#include "geminid/loss_scaler.h"

namespace geminid::checkpoint {

inline constexpr char kRecordName[] = "state.json";
// The version that is written. A reader refuses every other one.
inline constexpr uint64_t kFormatVersion = 1;

struct RunRecord {
  uint64_t step = 0;
  uint64_t updates = 0;
  LossScaler::State loss_scaler;
  RunState run;
  uint64_t ranks = 0;   // that wrote the checkpoint
  std::string optimizer{};  // ModelState::optimizer_name; empty if the record does not say
  bool healthy = true;  // the argument of Saver::Save; true if the record does not say
};

std::string ToText(const RunRecord& record);

// DATA_LOSS names the entry that is missing or wrong.
absl::StatusOr<RunRecord> ReadRecord(const std::string& text);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_RUN_RECORD_H_
