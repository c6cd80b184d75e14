#include "client/zero/core/evaluation_sample.h"

#include <algorithm>

namespace geminid::zero {
namespace {

// The number of an evaluation's operators among which a period is searched.
constexpr size_t kMostOperators = 4096;

}  // namespace

void EvaluationSample::Clear() {
  recorder_.Clear();
  operators_.clear();
  borders_.clear();
}

// The shortest period of the operators so far is their number minus their longest border.
void EvaluationSample::Add(const std::vector<uint32_t>& required,
                           const std::vector<uint32_t>& held) {
  if (operators_.size() == kMostOperators) Clear();  // if they never repeat, limits memory
  recorder_.BeginMoment(required, held);
  operators_.push_back(required);
  size_t border = borders_.empty() ? 0 : borders_.back();
  while (border > 0 && operators_[border] != required) border = borders_[border - 1];
  if (operators_.size() > 1 && operators_[border] == required) ++border;
  borders_.push_back(border);
}

std::vector<Moment> EvaluationSample::Take(bool end) {
  const size_t operators = operators_.size();
  if (operators < 2) return {};
  const size_t period = operators - borders_.back();
  const bool came_round = operators == 2 * period;
  if (!came_round && !end) return {};
  std::vector<Moment> moments = recorder_.Moments();
  if (came_round) moments.erase(moments.begin(), moments.begin() + static_cast<int64_t>(period));
  Clear();
  if (rounds_++ < patience_) return {};
  rounds_ = 0;
  patience_ = std::max<uint64_t>(1, 2 * patience_);
  return moments;
}

}  // namespace geminid::zero
