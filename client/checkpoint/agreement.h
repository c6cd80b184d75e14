// Agreements of ranks about a checkpoint, or about state that they hand over to other ranks: who
// failed in which phase, and why.
#ifndef GEMINID_CLIENT_CHECKPOINT_AGREEMENT_H_
#define GEMINID_CLIENT_CHECKPOINT_AGREEMENT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "geminid/communicator.h"

namespace geminid::checkpoint {

// The phase that a rank has completed, or failed in, when it calls Agree.
enum class Phase : uint8_t {
  kMakeFolder,
  kBegin,
  kStartPart,
  kWritePart,
  kFinish,
  kOpen,
  kLoad,
  kRestore,
  kBeginExport,
  kExport,
  kFinishExport,
  kBeginHandover,
  kHandOver,
  kFinishHandover,
  kTakeOver,
  kRestoreHandover,
};

// For a rank that cannot name the step, because it has failed.
inline constexpr uint64_t kNoStep = ~uint64_t{0};

// Whether all ranks have completed `phase` of the checkpoint of `step`; one small collective.
// Returns this rank's error; else the error of the first rank that has one, with its code, rank and
// message, cut to some 200 bytes. FAILED_PRECONDITION if another rank's answer is about another
// phase or step, such as a late answer about an earlier checkpoint.
absl::Status Agree(collectives::Communicator* communicator, Phase phase, uint64_t step,
                   const absl::Status& mine);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_AGREEMENT_H_
