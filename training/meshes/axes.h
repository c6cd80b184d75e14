// The axes of a mesh as people write them for --parallel, in the planner and in the trainer:
//
//   AXIS=VALUE,AXIS=VALUE        each axis once, in any order
//
// The caller knows the axes and their values. Errors are INVALID_ARGUMENT and begin with the flag's
// name. Pure.
#ifndef GEMINID_TRAINING_MESHES_AXES_H_
#define GEMINID_TRAINING_MESHES_AXES_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::parallel {

absl::Status RefuseParallel(const std::string& words);

// Calls `read` for each axis, up to its first error.
using ReadAxis = std::function<absl::Status(const std::string& axis, const std::string& value)>;
absl::Status ReadAxes(const std::string& text, const ReadAxis& read);

// A number from 1 to `most`.
absl::StatusOr<int> ReadSize(const std::string& axis, const std::string& text, int most);

// The parts of "MODE:SIZE"; a text without a colon is a size.
struct ModeAndSize {
  std::string mode;
  std::string size;
};
ModeAndSize SplitMode(const std::string& value);

// The value of the axis zero: ZeRO's stage, 1 to 3. "3:host" is stage 3 in which weights come from
// other hosts only once between updates.
struct ZeroAxis {
  int stage = 3;
  bool within_host = false;
};
absl::StatusOr<ZeroAxis> ReadZero(const std::string& value);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_AXES_H_
