// Short notes that one start of a run's ranks leaves for the next start. They are in memory of the
// process that starts the ranks.
#ifndef GEMINID_TRAINING_LAUNCH_RUN_MEMORY_H_
#define GEMINID_TRAINING_LAUNCH_RUN_MEMORY_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "geminid/rank_info.h"

namespace geminid::trainer {

// The variable with the number of the descriptor, which a rank inherits.
inline constexpr char kRunMemoryVariable[] = "GEMINID_RUN_MEMORY_FD";
// The size of one note. A single write stores it completely or not at all.
inline constexpr size_t kRunNoteBytes = 4096;

// The notes. Each has its own place in the memory.
enum class RunNote {
  kMesh,  // chosen by --parallel auto, valid for one number of ranks
  kData,  // the data with which the run began
};
inline constexpr size_t kRunNotes = 2;

// Creates the memory without notes.
absl::StatusOr<base::UniqueFd> MakeRunMemory();

class RunMemory {
 public:
  RunMemory() = default;  // there is no memory, because another launcher starts the ranks
  explicit RunMemory(int fd) : fd_(fd) {}
  // The descriptor stays open as long as this process. Programs that it executes do not inherit it.
  static RunMemory From(const collectives::Environment& environment);

  bool is_there() const { return fd_ >= 0; }
  // Replaces the note. INVALID_ARGUMENT if `words` are longer than its place.
  absl::Status Keep(RunNote note, const std::string& words) const;
  std::string Kept(RunNote note) const;

 private:
  int fd_ = -1;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RUN_MEMORY_H_
