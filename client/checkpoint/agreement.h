// Whether all ranks succeeded: one small collective.
#ifndef GEMINID_CLIENT_CHECKPOINT_AGREEMENT_H_
#define GEMINID_CLIENT_CHECKPOINT_AGREEMENT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "geminid/communicator.h"

namespace geminid::checkpoint {

// This rank's error; else, if another rank has one, an error of the same code that names that rank.
inline absl::Status Agree(collectives::Communicator* communicator, const absl::Status& mine,
                          const char* what) {
  std::vector<int64_t> code = {static_cast<int64_t>(mine.code())};
  std::vector<int64_t> codes(static_cast<size_t>(communicator->WorldSize()));
  if (absl::Status status = communicator->AllGather(code, codes); !status.ok()) {
    return mine.ok() ? status : mine;
  }
  if (!mine.ok()) return mine;
  for (size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] == 0) continue;
    return absl::Status(static_cast<absl::StatusCode>(codes[rank]),
                        absl::StrCat("rank ", rank, " failed ", what, "; it says why"));
  }
  return absl::OkStatus();
}

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_AGREEMENT_H_
