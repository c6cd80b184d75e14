// How long operators take: on the trainer's thread from one moment to the next, on streams from
// when they reach its work. Also how long a step's micro-batches took, which plans are judged by.
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

// Used by one thread. Streams may report on their own threads at any time.
class OperatorMeter {
 public:
  explicit OperatorMeter(std::function<absl::Time()> clock);
  // The clock is not called after the destructor.
  ~OperatorMeter();
  OperatorMeter(const OperatorMeter&) = delete;
  OperatorMeter& operator=(const OperatorMeter&) = delete;

  // `update_stall`: how long the run has waited for updates so far. Such waits do not count as time
  // of the micro-batch, since plans do not know of them.
  void BeginMicroBatch(bool first_of_step, absl::Duration update_stall);
  // Counts a micro-batch that followed its plan, up to the end of its last moment.
  void CountMicroBatch(absl::Duration update_stall);
  // The mean over the micro-batches counted in this step; 0: none was counted.
  double MeanMicroBatchSeconds() const;

  void BeginMoment();
  // The moment's duration; nullopt: none began. Evaluation's moments do not count as training's.
  std::optional<absl::Duration> EndMoment(bool evaluating);

  // The work of moment number `moment` is on the stream, from here to EndOnStream.
  void BeginOnStream(Stream* stream, size_t moment);
  void EndOnStream();
  // By number, the durations of this micro-batch's moments on streams that have ended.
  std::map<size_t, absl::Duration> TookOnStreams() const { return stream_times_->Took(); }

 private:
  const std::function<absl::Time()> clock_;
  absl::Time micro_batch_began_;
  absl::Duration update_stall_;  // of the whole run, when the micro-batch began
  absl::Duration counted_;
  int counted_micro_batches_ = 0;
  std::optional<absl::Time> moment_began_;
  absl::Time moment_ended_;
  std::shared_ptr<StreamTimes> stream_times_;  // of this micro-batch
  Stream* stream_ = nullptr;                   // that has the last moment's work
  size_t moment_on_stream_ = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STEP_OPERATOR_METER_H_
