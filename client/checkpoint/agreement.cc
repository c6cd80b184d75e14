#include "client/checkpoint/agreement.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace geminid::checkpoint {
namespace {

struct Answer {
  int64_t code = 0;  // an absl::StatusCode
  int64_t phase = 0;
  uint64_t step = 0;
  char reason[232] = {};
};
constexpr size_t kAnswerWords = sizeof(Answer) / sizeof(int64_t);
static_assert(sizeof(Answer) == kAnswerWords * sizeof(int64_t));

Answer AnswerOf(Phase phase, uint64_t step, const absl::Status& mine) {
  Answer answer{.code = static_cast<int64_t>(mine.code()),
                .phase = static_cast<int64_t>(phase),
                .step = step};
  const absl::string_view reason = mine.message();
  std::memcpy(answer.reason, reason.data(), std::min(reason.size(), sizeof(answer.reason) - 1));
  return answer;
}

const char* Name(int64_t phase) {
  switch (static_cast<Phase>(phase)) {
    case Phase::kMakeFolder:
      return "make the folder of the checkpoints";
    case Phase::kBegin:
      return "begin the checkpoint";
    case Phase::kStartPart:
      return "start its part of the checkpoint";
    case Phase::kWritePart:
      return "write its part of the checkpoint";
    case Phase::kFinish:
      return "finish the checkpoint";
    case Phase::kOpen:
      return "open the checkpoint";
    case Phase::kLoad:
      return "load the checkpoint";
    case Phase::kRestore:
      return "go on from the checkpoint";
    case Phase::kBeginExport:
      return "begin the export";
    case Phase::kExport:
      return "export";
    case Phase::kFinishExport:
      return "finish the export";
    case Phase::kBeginHandover:
      return "make room for the state";
    case Phase::kHandOver:
      return "hand over its part of the state";
    case Phase::kFinishHandover:
      return "finish the handover";
    case Phase::kTakeOver:
      return "take over its part of the state";
    case Phase::kRestoreHandover:
      return "go on from the state";
  }
  return "do something that this version does not know";
}

std::string Matter(const Answer& answer) {
  return absl::StrCat("to ", Name(answer.phase),
                      answer.step == kNoStep ? "" : absl::StrCat(" of step ", answer.step));
}

bool IsOfSameMatter(const Answer& a, const Answer& b) {
  return a.phase == b.phase && (a.step == b.step || a.step == kNoStep || b.step == kNoStep);
}

}  // namespace

absl::Status Agree(collectives::Communicator* communicator, Phase phase, uint64_t step,
                   const absl::Status& mine) {
  const Answer own = AnswerOf(phase, step, mine);
  std::vector<int64_t> words(kAnswerWords);
  std::memcpy(words.data(), &own, sizeof(own));
  std::vector<int64_t> all(kAnswerWords * static_cast<size_t>(communicator->WorldSize()));
  absl::Status exchanged = communicator->AllGather(words, all);
  if (!mine.ok()) return mine;
  if (!exchanged.ok()) return exchanged;
  for (int rank = 0; rank < communicator->WorldSize(); ++rank) {
    Answer answer;
    std::memcpy(static_cast<void*>(&answer), &all[kAnswerWords * static_cast<size_t>(rank)],
                sizeof(answer));
    if (!IsOfSameMatter(answer, own)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "rank ", rank, " was called ", Matter(answer), ", rank ", communicator->Rank(), " ",
          Matter(own), "; all ranks must make the same calls after the same step"));
    }
    if (answer.code == 0) continue;
    return absl::Status(static_cast<absl::StatusCode>(answer.code),
                        absl::StrCat("rank ", rank, " failed to ", Name(answer.phase), ": ",
                                     static_cast<const char*>(answer.reason)));
  }
  return absl::OkStatus();
}

}  // namespace geminid::checkpoint
