#include "training/launch/rank_state.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/exit_code.h"
#include "training/launch/stop_signals.h"

namespace geminid::trainer {
namespace {

constexpr size_t kLastWordsBytes = 4096;
constexpr int kLastWordsLines = 20;
constexpr char kEndedOnRequest[] = "the job was ended on request";

}  // namespace

void RankState::AddWords(const std::string& text) {
  new_words_ += text;
  last_words_ += text;
  if (last_words_.size() > kLastWordsBytes) {
    last_words_.erase(0, last_words_.size() - kLastWordsBytes);
  }
}

void RankState::Ended(int wait_status, bool said_done) {
  wait_status_ = wait_status;
  said_done_ = said_done;
}

void RankState::Lost(const std::string& why) {
  if (running()) lost_ = why;
}

std::string RankState::Describe() const {
  const std::string where = host_.empty() ? "" : absl::StrCat(" on ", host_);
  if (pid_ < 0)
    return absl::StrCat("rank ", rank_, host_.empty() ? "" : absl::StrCat(" (", host_, ")"));
  return absl::StrCat("rank ", rank_, " (pid ", pid_, where, ")");
}

std::string RankState::DescribeEnd() const {
  if (lost_) return absl::StrCat("was lost with its host: ", *lost_);
  if (!wait_status_) return "is running";
  if (WIFSIGNALED(*wait_status_)) {
    const int signal = WTERMSIG(*wait_status_);
    return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(*wait_status_));
}

int Guilt(const RankState& rank) {
  if (rank.lost()) return -1;
  const int status = *rank.wait_status();
  if (WIFSIGNALED(status)) return 0;
  if (WEXITSTATUS(status) == base::kExitAborted) return kStoppedGuilt;
  return WEXITSTATUS(status) == base::kExitUnavailable ? kMissingGuilt : 1;
}

std::optional<int> AgreedEnd(int wait_status) {
  if (!WIFEXITED(wait_status)) return std::nullopt;
  const int code = WEXITSTATUS(wait_status);
  if (code == base::kExitDiverged) return code;
  for (const int signal : kStopSignals) {
    if (code == base::kExitSignalBase + signal) return code;
  }
  return std::nullopt;
}

bool IsOnRequest(const RankState& rank) {
  return absl::StrContains(rank.last_words(), kEndedOnRequest);
}

bool IsPassing(const RankState& rank) {
  if (rank.lost() || IsOnRequest(rank)) return false;
  const int wait_status = *rank.wait_status();
  if (WIFSIGNALED(wait_status)) return true;
  switch (WEXITSTATUS(wait_status)) {
    case base::kExitFailed:
    case base::kExitUnavailable:
    case base::kExitDeadline:
    case base::kExitAborted:
      return true;
    default:
      return false;
  }
}

std::string Indented(const std::string& words) {
  std::vector<std::string> lines =
      absl::StrSplit(words, absl::ByAnyChar("\r\n"), absl::SkipEmpty());
  const size_t first = lines.size() - std::min<size_t>(lines.size(), kLastWordsLines);
  std::string text;
  for (size_t i = first; i < lines.size(); ++i) absl::StrAppend(&text, "  ", lines[i], "\n");
  return text;
}

}  // namespace geminid::trainer
