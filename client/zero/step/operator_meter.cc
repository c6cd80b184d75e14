#include "client/zero/step/operator_meter.h"

#include <utility>

namespace geminid::zero {

OperatorMeter::OperatorMeter(std::function<absl::Time()> clock)
    : clock_(std::move(clock)), stream_times_(std::make_shared<StreamTimes>(clock_)) {}

OperatorMeter::~OperatorMeter() { stream_times_->Stop(); }

void OperatorMeter::BeginMicroBatch(bool first_of_step, absl::Duration update_stall) {
  if (first_of_step) {
    counted_ = absl::ZeroDuration();
    counted_micro_batches_ = 0;
  }
  stream_times_->Stop();
  stream_times_ = std::make_shared<StreamTimes>(clock_);
  update_stall_ = update_stall;
  micro_batch_began_ = moment_ended_ = clock_();
}

void OperatorMeter::CountMicroBatch(absl::Duration update_stall) {
  counted_ += moment_ended_ - micro_batch_began_ - (update_stall - update_stall_);
  ++counted_micro_batches_;
}

double OperatorMeter::MeanMicroBatchSeconds() const {
  return counted_micro_batches_ == 0
             ? 0
             : absl::ToDoubleSeconds(counted_) / static_cast<double>(counted_micro_batches_);
}

void OperatorMeter::BeginMoment() { moment_began_ = clock_(); }

std::optional<absl::Duration> OperatorMeter::EndMoment(bool evaluating) {
  const std::optional<absl::Time> began = std::exchange(moment_began_, std::nullopt);
  if (!began.has_value()) return std::nullopt;
  const absl::Time now = clock_();
  if (!evaluating) moment_ended_ = now;
  return now - *began;
}

void OperatorMeter::BeginOnStream(Stream* stream, size_t moment) {
  stream_ = stream;
  moment_on_stream_ = moment;
  stream->CallBack([times = stream_times_, moment] { times->Begun(moment); });
}

void OperatorMeter::EndOnStream() {
  if (Stream* const stream = std::exchange(stream_, nullptr)) {
    stream->CallBack([times = stream_times_, moment = moment_on_stream_] { times->Ended(moment); });
  }
}

}  // namespace geminid::zero
