// Sends to one neighbour on a thread of its own.
#ifndef GEMINID_COLLECTIVES_PIPELINE_SENDER_H_
#define GEMINID_COLLECTIVES_PIPELINE_SENDER_H_

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// One message of a pipeline; its tag is the micro-batch.
struct PipelineMessage {
  std::vector<float> elements;
  int tag = 0;
};

class PipelineSender {
 public:
  // Of two ranks: this one and the one that receives. The sender is the only one to use it.
  explicit PipelineSender(std::unique_ptr<Communicator> pair);
  // What has not been sent then is not; the neighbour learns that this rank has gone.
  ~PipelineSender();
  PipelineSender(const PipelineSender&) = delete;
  PipelineSender& operator=(const PipelineSender&) = delete;

  // Returns at once. RESOURCE_EXHAUSTED: no thread could be started.
  absl::Status Send(PipelineMessage message);
  // When all that was given is sent, or the first error.
  absl::Status Wait();
  // The neighbour's receives, and what waits here, fail with ABORTED and `reason`. Any thread.
  void Abort(const std::string& reason) { pair_->Abort(reason); }

 private:
  void Loop();

  const std::unique_ptr<Communicator> pair_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PipelineMessage> waiting_;  // the first one is on its way
  absl::Status status_;
  bool stop_ = false;
  std::thread thread_;  // started by the first message
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_PIPELINE_SENDER_H_
