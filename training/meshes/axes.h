// The axes of a mesh as people write them for --parallel, of the planner and of the trainer:
//
//   AXIS=VALUE,AXIS=VALUE        each axis once, in any order
//
// Which axes there are and what they take says the caller. Errors are INVALID_ARGUMENT and begin
// with the flag's name. Pure.
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

// Of "MODE:SIZE"; without a colon all of it is the size.
struct ModeAndSize {
  std::string mode;
  std::string size;
};
ModeAndSize SplitMode(const std::string& value);

// Of the axis zero: ZeRO's stage, 1 to 3; and of the third whether weights come from other hosts
// once between updates ("3:host").
struct ZeroAxis {
  int stage = 3;
  bool within_host = false;
};
absl::StatusOr<ZeroAxis> ReadZero(const std::string& value);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_AXES_H_
