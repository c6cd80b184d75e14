#include "training/ranks/run_end.h"

#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"
#include "client/zero/state/disk_spent.h"
#include "training/launch/stop_signals.h"

namespace geminid::trainer {

RunEnd::RunEnd(collectives::Communicator* communicator, Session* session,
               std::function<int()> own_signal, bool stops_on_nan)
    : communicator_(communicator),
      session_(session),
      own_signal_(std::move(own_signal)),
      stops_on_nan_(stops_on_nan) {}

absl::StatusOr<double> RunEnd::Add(double mine) {
  const int own = own_signal_ ? own_signal_() : 0;
  std::vector<double> sums = {mine};
  for (const int stop : kStopSignals) sums.push_back(own == stop ? 1 : 0);
  sums.push_back(my_no_data_.ok() ? 0 : 1);
  sums.push_back(my_ask_);
  const absl::Time began = base::MonotonicNow();
  GEMINID_RETURN_IF_ERROR(communicator_->AllReduce(sums, sums, collectives::ReduceOp::kSum));
  session_->AddStall(StallCause::kCollective, base::MonotonicNow() - began);
  for (size_t i = 0; i < std::size(kStopSignals) && how_.signal == 0; ++i) {
    if (sums[i + 1] > 0) how_.signal = kStopSignals[i];
  }
  how_.no_data = how_.no_data || sums[sums.size() - 2] > 0;
  asked_ = static_cast<int>(sums.back());
  return sums[0];
}

absl::StatusOr<bool> RunEnd::Ask() {
  GEMINID_RETURN_IF_ERROR(Add(0).status());
  return has_come();
}

void RunEnd::NoteLoss(double loss) {
  if (!std::isfinite(loss)) how_.diverged = stops_on_nan_ && how_.signal == 0;
}

absl::Status RunEnd::NoteRefusedStep(const absl::Status& refused) {
  if (!zero::IsDiskSpent(refused)) return refused;
  how_.spent = true;
  return absl::OkStatus();
}

absl::Status RunEnd::NoData() const {
  if (!my_no_data_.ok()) return my_no_data_;
  return absl::AbortedError("another rank could not read its data");
}

}  // namespace geminid::trainer
