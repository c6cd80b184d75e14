#include "collectives/pipeline/sender.h"

#include <utility>

#include "base/start_thread.h"
#include "base/status_macros.h"

namespace geminid::collectives {

PipelineSender::PipelineSender(std::unique_ptr<Communicator> pair) : pair_(std::move(pair)) {}

PipelineSender::~PipelineSender() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    if (!waiting_.empty()) pair_->Abort("the stage of the pipeline ended");
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::Status PipelineSender::Send(PipelineMessage message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!status_.ok()) return status_;
  if (!thread_.joinable()) {
    GEMINID_ASSIGN_OR_RETURN(thread_, base::StartThread([this] { Loop(); }));
  }
  waiting_.push_back(std::move(message));
  changed_.notify_all();
  return absl::OkStatus();
}

absl::Status PipelineSender::Wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() || !status_.ok(); });
  return status_;
}

void PipelineSender::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const PipelineMessage& next = waiting_.front();  // only this thread takes it away
    lock.unlock();
    const absl::Status sent = pair_->Send(next.elements, 1 - pair_->Rank(), next.tag);
    lock.lock();
    waiting_.pop_front();
    if (!sent.ok()) {
      status_ = sent;
      waiting_.clear();
    }
    changed_.notify_all();
    if (stop_ || !sent.ok()) return;
  }
}

}  // namespace geminid::collectives
