// How long operators take: by the trainer's thread from one moment to the next, and on streams by
// when those get there. Also how long a step's micro-batches took, for the judgement of plans.
#ifndef GEMINID_CLIENT_ZERO_STEP_OPERATOR_METER_H_
#define GEMINID_CLIENT_ZERO_STEP_OPERATOR_METER_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "client/zero/basics/stream_times.h"
#include "geminid/stream.h"

namespace geminid::zero {

// Of one thread; streams may come to what was queued at any time.
class OperatorMeter {
 public:
  explicit OperatorMeter(std::function<absl::Time()> clock);
  // The clock is not asked after it.
  ~OperatorMeter();
  OperatorMeter(const OperatorMeter&) = delete;
  OperatorMeter& operator=(const OperatorMeter&) = delete;

  // `update_stall`: how long the run has waited for updates so far. Such waits are no part of a
  // micro-batch, since a plan knows nothing of them.
  void BeginMicroBatch(bool first_of_step, absl::Duration update_stall);
  // One that followed its plan, up to the end of its last moment.
  void CountMicroBatch(absl::Duration update_stall);
  // Of those that were counted in this step; 0: there are none.
  double MeanMicroBatchSeconds() const;

  void BeginMoment();
  // What it took; nothing: none has begun. One of evaluation is no part of the micro-batch.
  std::optional<absl::Duration> EndMoment(bool evaluating);

  // The moment of this number has its work on the stream, from here to EndOnStream.
  void BeginOnStream(Stream* stream, size_t moment);
  void EndOnStream();
  // Of this micro-batch's moments on streams that have ended, by number.
  std::map<size_t, absl::Duration> TookOnStreams() const { return stream_times_->Took(); }

 private:
  const std::function<absl::Time()> clock_;
  absl::Time micro_batch_began_;
  absl::Duration update_stall_;  // of the whole run, when it began
  absl::Duration counted_;
  int counted_micro_batches_ = 0;
  std::optional<absl::Time> moment_began_;
  absl::Time moment_ended_;
  std::shared_ptr<StreamTimes> stream_times_;  // of this micro-batch
  Stream* stream_ = nullptr;                   // that the last moment's work is on
  size_t moment_on_stream_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STEP_OPERATOR_METER_H_
