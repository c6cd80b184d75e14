#include "training/launch/rank_state.h"

#include <sys/wait.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

constexpr size_t kLastWordsBytes = 4096;

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

}  // namespace geminid::trainer
