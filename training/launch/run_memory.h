// Words that one start of a run's ranks leaves for the next start, in memory of the process that
// starts them.
#ifndef GEMINID_TRAINING_LAUNCH_RUN_MEMORY_H_
#define GEMINID_TRAINING_LAUNCH_RUN_MEMORY_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "geminid/rank_info.h"

namespace geminid::trainer {

// Tells a rank the descriptor, which it inherits.
inline constexpr char kRunMemoryVariable[] = "GEMINID_RUN_MEMORY_FD";
// Of one note: as much as one write leaves whole or not at all.
inline constexpr size_t kRunNoteBytes = 4096;

// What is noted, each in a place of its own.
enum class RunNote {
  kMesh,  // that --parallel auto has chosen, for as long as the number of ranks stays
  kData,  // that the run began with
};
inline constexpr size_t kRunNotes = 2;

// Empty.
absl::StatusOr<base::UniqueFd> MakeRunMemory();

class RunMemory {
 public:
  RunMemory() = default;  // of ranks that another launcher starts, which have none
  explicit RunMemory(int fd) : fd_(fd) {}
  // The descriptor stays the process's, and is not passed on from here.
  static RunMemory From(const collectives::Environment& environment);

  bool is_there() const { return fd_ >= 0; }
  // Instead of what was there before. INVALID_ARGUMENT for more than it has room for.
  absl::Status Keep(RunNote note, const std::string& words) const;
  std::string Kept(RunNote note) const;

 private:
  int fd_ = -1;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RUN_MEMORY_H_
