// The ranks along one axis of a grid, for buffers in the memory of the device that computes the
// layers.
#ifndef GEMINID_TRAINING_NN_PARALLEL_AXIS_RANKS_H_
#define GEMINID_TRAINING_NN_PARALLEL_AXIS_RANKS_H_

#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "geminid/buffer.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

// The calls, the errors and the bits are those of Communicator. One thread at a time; Abort on any.
class AxisRanks {
 public:
  virtual ~AxisRanks() = default;

  virtual int Rank() const = 0;
  virtual absl::Status AllGather(ConstBuffer in, Buffer out) = 0;
  // Sums.
  virtual absl::Status ReduceScatter(ConstBuffer in, Buffer out) = 0;
  virtual absl::Status Reduce(ConstBuffer in, Buffer out, int root) = 0;
  // `out` may be `in`.
  virtual absl::Status AllReduce(ConstBuffer in, Buffer out, ReduceOp op) = 0;
  // Every rank's `out` becomes the root's `own`; other ranks' `own` is not read.
  virtual absl::Status Broadcast(ConstBuffer own, Buffer out, int root) = 0;
  // With one other rank, or with this rank itself.
  virtual absl::Status Exchange(ConstBuffer mine, Buffer theirs, int peer) = 0;
  virtual void Abort(const std::string& reason) = 0;
};

// For layers whose memory is the host's.
class HostAxisRanks final : public AxisRanks {
 public:
  // `ranks` outlive this object.
  explicit HostAxisRanks(Communicator& ranks) : ranks_(ranks) {}

  int Rank() const override { return ranks_.Rank(); }
  absl::Status AllGather(ConstBuffer in, Buffer out) override { return ranks_.AllGather(in, out); }
  absl::Status ReduceScatter(ConstBuffer in, Buffer out) override {
    return ranks_.ReduceScatter(in, out);
  }
  absl::Status Reduce(ConstBuffer in, Buffer out, int root) override {
    return ranks_.Reduce(in, out, root);
  }
  absl::Status AllReduce(ConstBuffer in, Buffer out, ReduceOp op) override {
    return ranks_.AllReduce(in, out, op);
  }
  absl::Status Broadcast(ConstBuffer own, Buffer out, int root) override {
    if (ranks_.Rank() == root && out.bytes() > 0) std::memcpy(out.data, own.data, out.bytes());
    return ranks_.Broadcast(out, root);
  }
  absl::Status Exchange(ConstBuffer mine, Buffer theirs, int peer) override {
    return ranks_.SendReceive(mine, peer, theirs, peer);
  }
  void Abort(const std::string& reason) override { ranks_.Abort(reason); }

 private:
  Communicator& ranks_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_AXIS_RANKS_H_
