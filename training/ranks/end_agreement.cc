#include "training/ranks/end_agreement.h"

#include <iterator>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"
#include "training/launch/stop_signals.h"

namespace geminid::trainer {

EndAgreement::EndAgreement(collectives::Communicator* communicator, Session* session,
                           std::function<int()> own_signal)
    : communicator_(communicator), session_(session), own_signal_(std::move(own_signal)) {}

absl::StatusOr<double> EndAgreement::Add(double mine) {
  const int own = own_signal_ ? own_signal_() : 0;
  std::vector<double> sums = {mine};
  for (const int stop : kStopSignals) sums.push_back(own == stop ? 1 : 0);
  sums.push_back(my_ask_);
  const absl::Time began = base::MonotonicNow();
  GEMINID_RETURN_IF_ERROR(communicator_->AllReduce(sums, sums, collectives::ReduceOp::kSum));
  session_->AddStall(StallCause::kCollective, base::MonotonicNow() - began);
  for (size_t i = 0; i < std::size(kStopSignals) && signal_ == 0; ++i) {
    if (sums[i + 1] > 0) signal_ = kStopSignals[i];
  }
  asked_ = static_cast<int>(sums.back());
  return sums[0];
}

}  // namespace geminid::trainer
